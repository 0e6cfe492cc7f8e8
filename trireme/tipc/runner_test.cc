#include "trireme/tipc/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "trireme/core/deadline.h"
#include "trireme/core/file.h"

namespace trireme::tipc {
namespace {

using namespace std::chrono_literals;
using Kind = Result::Kind;
using testing::ElementsAre;
using testing::HasSubstr;

class RunnerTest : public testing::Test {
 protected:
  Step shell(const std::string& name, const std::string& script, std::optional<size_t> after = {}) const {
    Step step{.kind = StepKind::train, .group = "group", .name = name, .command = {"sh", "-c", script}};
    step.log = folder_.path() / "group" / (name + ".log");
    step.after = after;
    return step;
  }

  std::string log(const std::string& name) const {
    return read_file(folder_.path() / "group" / (name + ".log")).value_or("no log");
  }

  static std::vector<Result> run(Runner& runner, std::vector<Step> steps) { return runner.run(steps); }

  static std::vector<Kind> kinds(const std::vector<Result>& results) {
    std::vector<Kind> all;
    for (const Result& result : results) all.push_back(result.kind);
    return all;
  }

  TempDir folder_;
};

TEST_F(RunnerTest, OutputGoesToTheLogAndOn) {
  std::string seen;
  Runner runner({.output = [&](std::string_view bytes) { seen += bytes; }});
  const auto results = run(runner, {shell("a", "echo out; echo err >&2")});
  EXPECT_THAT(kinds(results), ElementsAre(Kind::passed));
  EXPECT_THAT(log("a"), testing::StartsWith("$ sh -c 'echo out; echo err >&2'\n"));
  EXPECT_THAT(log("a"), HasSubstr("out\n"));
  EXPECT_THAT(log("a"), HasSubstr("err\n"));
  EXPECT_THAT(seen, HasSubstr("out\n"));
  EXPECT_EQ(exit_code(runner, results), 0);
}

TEST_F(RunnerTest, AFailureTakesThoseThatNeedIt) {
  Runner runner({});
  const auto results = run(runner, {shell("train", "echo the reason; exit 7"), shell("eval", "true", 0),
                                    shell("infer", "true", 1), shell("other", "true")});
  EXPECT_THAT(kinds(results), ElementsAre(Kind::failed, Kind::skipped, Kind::skipped, Kind::passed));
  EXPECT_EQ(results[0].reason, "exit 7");
  EXPECT_THAT(results[0].last_lines, ElementsAre("the reason"));
  EXPECT_EQ(results[1].reason, "no train before it");
  EXPECT_EQ(exit_code(runner, results), 1);
}

TEST_F(RunnerTest, AProgramThatIsNotThere) {
  Step step = shell("a", "");
  step.command = {"no-such-program-here", "x"};
  Runner runner({});
  const auto results = run(runner, {step});
  EXPECT_THAT(kinds(results), ElementsAre(Kind::failed));
  EXPECT_THAT(results[0].reason, HasSubstr("cannot start no-such-program-here"));
}

TEST_F(RunnerTest, AStepThatHangsIsStopped) {
  // The next step has to end within that time too, on a machine that is busy with other things.
  Runner runner({.timeout = 1s, .grace = 100ms});
  const auto start = Clock::now();
  const auto results =
      run(runner, {shell("deaf", "trap '' TERM; while :; do sleep 0.05; done"), shell("next", "true")});
  EXPECT_LT(Clock::now() - start, 5s);
  EXPECT_THAT(kinds(results), ElementsAre(Kind::failed, Kind::passed));
  EXPECT_THAT(results[0].reason, HasSubstr("stopped after 1 s"));
  EXPECT_THAT(log("deaf"), HasSubstr("stopped after 1 s"));
}

TEST_F(RunnerTest, ASignalStopsTheChain) {
  Runner runner({.output = [](std::string_view) { ::kill(::getpid(), SIGINT); }});
  const auto results = run(runner, {shell("a", "true"), shell("b", "echo now; exec sleep 60"), shell("c", "true")});
  EXPECT_THAT(kinds(results), ElementsAre(Kind::passed, Kind::failed, Kind::not_run));
  EXPECT_THAT(results[1].reason, HasSubstr("signal 2"));
  EXPECT_EQ(exit_code(runner, results), 130);
}

// Asks for an end on the first word, and again when the step says that it was asked.
RunOptions asking_twice(std::chrono::milliseconds impatience) {
  return {.impatience = impatience, .output = [](std::string_view bytes) {
            if (bytes.find("tidy") == std::string_view::npos) ::kill(::getpid(), SIGTERM);
          }};
}

constexpr const char* kTidies =
    "trap 'echo again; sleep 0.2; echo tidy; exit 0' TERM; echo now; while :; do sleep 0.05; done";

TEST_F(RunnerTest, ASignalThatComesTwiceAtOnceIsOneWish) {
  Runner runner(asking_twice(1min));
  const auto results = run(runner, {shell("a", kTidies)});
  EXPECT_THAT(log("a"), HasSubstr("tidy\n")) << "the grace was lost";
  EXPECT_EQ(results[0].reason, "stopped by signal 15");
}

TEST_F(RunnerTest, TheSecondWishKills) {
  Runner runner(asking_twice(0ms));
  run(runner, {shell("a", kTidies)});
  EXPECT_THAT(log("a"), testing::Not(HasSubstr("tidy\n")));
}

// A guard that is stopped stands for a process that the kernel holds: neither says that it ended.
TEST_F(RunnerTest, WhatSurvivesSigkillIsLeftBehind) {
  Runner runner({.grace = 50ms, .give_up = 50ms, .output = [](std::string_view) { ::kill(::getpid(), SIGTERM); }});
  const auto start = Clock::now();
  const auto results = run(runner, {shell("stuck", "kill -STOP $PPID; echo stuck; exec sleep 60")});
  EXPECT_LT(Clock::now() - start, 5s);
  EXPECT_THAT(kinds(results), ElementsAre(Kind::failed));
  EXPECT_THAT(results[0].reason, testing::StartsWith("stopped by signal 15; still there 0.05 s after SIGKILL"));
}

TEST_F(RunnerTest, ALogThatCannotBeMadeFailsTheStep) {
  write_file_atomically(folder_.path() / "group", "a file where a folder should be");
  Runner runner({});
  const auto results = run(runner, {shell("a", "true")});
  EXPECT_THAT(kinds(results), ElementsAre(Kind::failed));
  EXPECT_THAT(results[0].reason, HasSubstr("cannot make the folder"));
}

TEST_F(RunnerTest, EnvironmentAndOutdatedFiles) {
  std::filesystem::create_directories(folder_.path() / "group/inference");
  Step step = shell("a", "echo is $X; test ! -e " + (folder_.path() / "group/inference").string());
  step.environment = {{"X", "set"}};
  step.outdated = {folder_.path() / "group/inference"};
  Runner runner({.folder = folder_.path()});
  EXPECT_THAT(kinds(run(runner, {step})), ElementsAre(Kind::passed)) << log("a");
  EXPECT_THAT(log("a"), HasSubstr("is set"));
}

TEST_F(RunnerTest, WeightsBelowTheModelsFolderAreFound) {
  const auto folder = folder_.path() / "group";
  std::filesystem::create_directories(folder / "tiny/latest");
  Step step = shell("eval", "echo \"$@\"");
  step.kind = StepKind::eval;
  step.weights = Weights{folder, "latest"};
  step.command.insert(step.command.end(), {"sh", "--pretrained=" + step.weights->path()});
  Runner runner({});
  EXPECT_THAT(kinds(run(runner, {step})), ElementsAre(Kind::passed));
  EXPECT_THAT(log("eval"), HasSubstr("\n--pretrained=" + (folder / "tiny/latest").string()));
}

TEST_F(RunnerTest, ATrainingBeginsWithoutOldWeights) {
  const auto folder = folder_.path() / "group";
  std::filesystem::create_directories(folder / "tiny/latest");
  Step step = shell("train", "true");
  step.weights = Weights{folder, "latest"};
  Runner runner({.folder = folder_.path()});
  EXPECT_THAT(kinds(run(runner, {step})), ElementsAre(Kind::passed));
  EXPECT_FALSE(std::filesystem::exists(folder / "tiny/latest"));
}

TEST_F(RunnerTest, NothingIsRemovedBehindALinkInTheGroupsPlace) {
  const TempDir elsewhere;
  for (const char* name : {"inference", "latest"}) std::filesystem::create_directory(elsewhere.path() / name);
  std::filesystem::create_directory_symlink(elsewhere.path(), folder_.path() / "group");
  Step train = shell("train", "true"), exported = shell("export", "true");
  train.weights = Weights{folder_.path() / "group", "latest"};
  exported.outdated = {folder_.path() / "group/inference"};
  Runner runner({.folder = folder_.path()});
  const auto results = run(runner, {train, exported});
  EXPECT_THAT(kinds(results), ElementsAre(Kind::failed, Kind::failed));
  EXPECT_THAT(results[1].reason, HasSubstr("leads out of"));
  for (const char* name : {"inference", "latest"}) EXPECT_TRUE(std::filesystem::exists(elsewhere.path() / name));
}

}  // namespace
}  // namespace trireme::tipc
