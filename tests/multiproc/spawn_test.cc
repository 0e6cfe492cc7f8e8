// spawn() re-executes this very program. ctest runs each case with a filter of its own, so a child comes by the same
// way to the same call; run as a whole, children walk through the earlier cases first, silently.
#include "trireme/launch/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "trireme/core/env.h"
#include "trireme/core/fd.h"
#include "trireme/core/file.h"
#include "trireme/core/test_support.h"
#include "trireme/core/text.h"
#include "trireme/store/job.h"
#include "trireme/store/meeting_store.h"
#include "trireme/store/store.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

// A folder that parent and children agree on: its name comes from the parent through the environment.
class SpawnTest : public testing::Test {
 protected:
  SpawnTest() {
    if (const char* given = std::getenv("SPAWN_TEST_DIR")) {
      path_ = given;
    } else {
      dir_ = std::make_unique<TempDir>("spawn-test");
      path_ = dir_->path();
      ::setenv("SPAWN_TEST_DIR", path_.c_str(), 1);
    }
  }
  ~SpawnTest() override {
    if (dir_) ::unsetenv("SPAWN_TEST_DIR");
  }
  std::string noted(int rank) const { return read_file(path_ / std::to_string(rank)).value_or("nothing"); }
  size_t notes() const {
    const std::filesystem::directory_iterator folder(path_);
    return static_cast<size_t>(std::distance(begin(folder), end(folder)));
  }

  std::unique_ptr<TempDir> dir_;
  std::filesystem::path path_;
};

void note(const std::filesystem::path& folder, const std::string& text) {
  const ParallelEnv env = ParallelEnv::from_environment();
  write_file_atomically(folder / std::to_string(env.rank), text + " of " + std::to_string(env.world_size));
}

SpawnError error_of(const std::function<void()>& function, SpawnOptions options) {
  try {
    spawn(function, options);
  } catch (const SpawnError& error) {
    return error;
  }
  return SpawnError(-1, 0, "no error");
}

TEST_F(SpawnTest, FunctionOnlyUsesEveryCore) {
  spawn([&] { note(path_, "here"); });
  EXPECT_EQ(notes(), static_cast<size_t>(::sysconf(_SC_NPROCESSORS_ONLN)));
}

TEST_F(SpawnTest, WithArguments) {
  spawn([](const std::filesystem::path& folder, int number) { note(folder, std::to_string(number)); },
        std::tuple{path_, 42}, {.nprocs = 1});
  EXPECT_EQ(noted(0), "42 of 1");
}

TEST_F(SpawnTest, WithNprocs) {
  spawn([&] { note(path_, "here"); }, {.nprocs = 3});
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(noted(rank), "here of 3");
}

TEST_F(SpawnTest, WithGpusThatAreNotVisibleIsAnErrorThatSaysSo) {
  try {
    spawn([] {}, {.nprocs = 2, .gpus = "98,99"});
    FAIL() << "no machine has that many";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), AllOf(StartsWith("spawn: gpus 98: "), HasSubstr("visible"), Not(HasSubstr("--"))));
  }
}

TEST_F(SpawnTest, NumberAndDevicesMustAgree) {
  try {
    spawn([] {}, {.nprocs = 2, .gpus = "4"});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("\"4\" names 1"), HasSubstr("nprocs is 2")));
  }
  EXPECT_THROW(spawn([] {}, {.nprocs = 0}), UsageError);
  EXPECT_THROW(spawn([] {}, {.nprocs = 1'000'000}), UsageError);
}

TEST_F(SpawnTest, SeveralSpawnsInOneProgram) {
  spawn([&] { note(path_, "first"); }, {.nprocs = 1});
  EXPECT_EQ(noted(0), "first of 1");
  spawn([&] { note(path_, "second"); }, {.nprocs = 2});
  EXPECT_EQ(noted(0), "second of 2");
  EXPECT_EQ(noted(1), "second of 2");
}

TEST_F(SpawnTest, AnExceptionReachesTheParentWithItsRankAndText) {
  const SpawnError error = error_of(
      [] {
        if (get_rank() == 1) throw std::runtime_error("rank one is unhappy");
        ::pause();
      },
      {.nprocs = 2});
  EXPECT_EQ(error.rank(), 1);
  EXPECT_THAT(error.what(), HasSubstr("rank 1 failed: rank one is unhappy"));
}

// As a c10::Error says it.
TEST_F(SpawnTest, AnExceptionsLinesStayLinesAndItsBacktraceIsLeftOut) {
  const SpawnError error = error_of(
      [] {
        throw std::runtime_error(
            "sizes differ:\n[2] and [3]\nException raised from add at Ops.cpp:1 (most recent call first):\nframe #0: "
            "x");
      },
      {.nprocs = 1});
  EXPECT_STREQ(error.what(), "rank 0 failed: sizes differ:\n[2] and [3]");
}

TEST_F(SpawnTest, ASignalReachesTheParentInWords) {
  const SpawnError error = error_of([] { ::raise(SIGKILL); }, {.nprocs = 1});
  EXPECT_EQ(error.exit_code(), 137);
  EXPECT_THAT(error.what(), HasSubstr("killed by signal 9"));
}

TEST_F(SpawnTest, AnErrorOfOursKeepsItsExitCode) {
  const SpawnError error = error_of([] { throw UsageError("wrong"); }, {.nprocs = 1});
  EXPECT_EQ(error.exit_code(), exit_code::kUsage);
}

// Run by the next case in a process of its own, whose output can be read.
TEST_F(SpawnTest, Prints) {
  std::cout << "before the call\n";
  spawn([] { std::printf("inside %d\n", get_rank()); }, {.nprocs = 2});
  std::cout << "after the call" << std::endl;
}

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), &::pclose);
  std::string output;
  char buffer[4096];
  while (const size_t size = std::fread(buffer, 1, sizeof buffer, pipe.get())) output.append(buffer, size);
  return output;
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

TEST_F(SpawnTest, OutputHasItsRankAndWhatMainPrintedBeforeIsShownOnce) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string output = output_of(self + " --gtest_filter=SpawnTest.Prints 2>&1");
  EXPECT_THAT(output, AllOf(HasSubstr("\nrank 0: inside 0\n"), HasSubstr("\nrank 1: inside 1\n"),
                            HasSubstr("\nafter the call\n")));
  EXPECT_EQ(count(output, "before the call"), 1) << output;
}

// As comm waits for the members of a group.
void meet_rank_1() {
  const Job job = connect_job();
  store::MeetingStore meeting(job.store, {.operation = "new_group", .prefix = "group/", .me = 0, .ranks = {0, 1}});
  try {
    meeting.get("never", Deadline::in(20s));
  } catch (const PeerError&) {
    store::EndedRanks(job.store, 0).note_wait({.rank = 0, .operation = "new_group", .ranks = {1}});
    throw;
  }
}

TEST_F(SpawnTest, ARankThatReturnsWhileAnotherWaitsForItIsTheCulprit) {
  const SpawnError error = error_of(
      [] {
        if (get_rank() == 0) meet_rank_1();
      },
      {.nprocs = 2});
  EXPECT_EQ(error.rank(), 1);
  EXPECT_EQ(error.exit_code(), exit_code::kPeer);
  EXPECT_THAT(error.what(), HasSubstr("rank 1 ended with exit code 0 while rank 0 waited for it in new_group; "));
}

TEST_F(SpawnTest, ARankMayReturnEarlyWhenNobodyWaitsForIt) {
  spawn(
      [] {
        if (get_rank() == 1) return;
        const Job job = connect_job();
        store::EndedRanks ended(job.store, 0);
        EXPECT_TRUE(eventually([&] { return ended.list().contains(1); }));
      },
      {.nprocs = 2});
}

TEST_F(SpawnTest, JoinWithATimeoutAndTheDestructorStops) {
  SpawnContext context = spawn([] { ::pause(); }, {.nprocs = 2, .join = false, .grace = 1s});
  EXPECT_FALSE(context.join(100ms));
  std::vector<int> pids = context.pids();
  ASSERT_EQ(pids.size(), 2u);
  context = SpawnContext(nullptr);
  for (const int pid : pids) EXPECT_TRUE(pid == 0 || ::kill(pid, 0) != 0);
}

TEST_F(SpawnTest, ProcessesStoppedBeforeAnybodyJoinedAreAnError) {
  const CaughtLog log;
  spawn([] { ::pause(); }, {.nprocs = 2, .join = false, .grace = 1s});
  EXPECT_THAT(log.lines(), ElementsAre(AllOf(StartsWith("error: spawn: stopped the processes, 2 of them"),
                                             HasSubstr("call its join()"))));
}

TEST_F(SpawnTest, AFailureThatNobodyFetchedIsLogged) {
  const CaughtLog log;
  {
    const SpawnContext context =
        spawn([] { throw std::runtime_error("rank is unhappy"); }, {.nprocs = 1, .join = false});
    ASSERT_TRUE(eventually([&] { return context.pids() == std::vector<int>{0}; }));
  }
  EXPECT_THAT(log.lines(), ElementsAre(StartsWith("error: spawn: rank 0 failed: rank is unhappy; nobody has fetched")));
}

TEST_F(SpawnTest, WhatJoinHasToldIsNotLogged) {
  const CaughtLog log;
  error_of([] { throw std::runtime_error("rank is unhappy"); }, {.nprocs = 1});
  EXPECT_FALSE(spawn([] { ::pause(); }, {.nprocs = 1, .join = false, .grace = 1s}).join(100ms));
  EXPECT_THAT(log.lines(), IsEmpty());
}

TEST_F(SpawnTest, PidsAreThereAtOnce) {
  const SpawnContext context = spawn([] { ::pause(); }, {.nprocs = 2, .join = false, .grace = 1s});
  const std::vector<int> pids = context.pids();
  ASSERT_EQ(pids.size(), 2u);
  for (const int pid : pids) {
    ASSERT_GT(pid, 0);
    EXPECT_EQ(::kill(pid, 0), 0);
  }
}

TEST_F(SpawnTest, JoinLaterSeesTheSuccess) {
  SpawnContext context = spawn([&] { note(path_, "here"); }, {.nprocs = 1, .join = false});
  EXPECT_TRUE(context.join(20s));
  EXPECT_TRUE(context.join());
  EXPECT_EQ(noted(0), "here of 1");
}

TEST_F(SpawnTest, SpawnInsideASpawnedFunctionIsRefused) {
  const SpawnError error = error_of([] { spawn([] {}, {.nprocs = 1}); }, {.nprocs = 1});
  EXPECT_THAT(error.what(), HasSubstr("inside a spawned function"));
}

TEST_F(SpawnTest, TheProcessesShareTheJobsStore) {
  spawn(
      [] {
        const Job job = connect_job();
        const int me = job.env.rank;
        job.store->set("from/" + std::to_string(me), std::to_string(me * 10));
        const std::string other = job.store->get("from/" + std::to_string(1 - me), Deadline::in(20s));
        if (other != std::to_string((1 - me) * 10)) throw std::runtime_error("got " + other);
      },
      {.nprocs = 2});
}

TEST_F(SpawnTest, AChildThatNeverReachesTheCallIsExplained) {
  if (std::getenv("PADDLE_TRAINER_ID")) {
    std::fprintf(stderr, "main went another way\n");
    std::exit(3);
  }
  const SpawnError error = error_of([] {}, {.nprocs = 1});
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("before it reached spawn()"), HasSubstr("exit 3"), HasSubstr("main went another way")));
}

TEST_F(SpawnTest, ACopyThatEndsWellWithoutTheCallHasFailed) {
  const char* rank = std::getenv("PADDLE_TRAINER_ID");
  if (rank && *rank == '1') std::exit(0);
  const SpawnError error = error_of([] { ::pause(); }, {.nprocs = 2, .grace = 1s});
  EXPECT_EQ(error.rank(), 1);
  EXPECT_EQ(error.exit_code(), exit_code::kUsage);
  EXPECT_THAT(error.what(), HasSubstr("rank 1 ended before it reached spawn(): exit 0; "));
}

TEST_F(SpawnTest, ACopyWhoseStreamsAreClosedReachesTheCall) {
  if (std::getenv("PADDLE_TRAINER_ID"))
    for (const int stream : {1, 2}) ::close(stream);
  spawn([&] { note(path_, "here"); }, {.nprocs = 1});
  EXPECT_EQ(noted(0), "here of 1");
}

// As strtok() does it.
TEST_F(SpawnTest, CopiesGetTheWordsThatTheProgramGotBeforeItCutThem) {
  const std::string words = read_file("/proc/self/cmdline").value();
  char* const slash = std::strrchr(program_invocation_name, '/');  // in the first word itself
  ASSERT_NE(slash, nullptr);
  *slash = '\0';
  spawn([&] { note(path_, words); }, {.nprocs = 1});
  *slash = '/';
  EXPECT_EQ(noted(0), words + " of 1");
}

void send_pipes_to(const std::filesystem::path& file) {
  const UniqueFd target(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  for (int fd = 3; fd < 1024; ++fd) {
    struct stat status {};
    if (::fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode)) ::dup2(target.get(), fd);
  }
}

TEST_F(SpawnTest, AnExceptionIsNotWrittenIntoAFileThatTookThePipesNumber) {
  const SpawnError error = error_of(
      [&] {
        send_pipes_to(path_ / "own file");
        throw std::runtime_error("rank is unhappy");
      },
      {.nprocs = 1});
  EXPECT_STREQ(error.what(), "rank 0 ended: exit 1");
  EXPECT_EQ(read_file(path_ / "own file"), "");
}

// Run by the next case, with a standard input.
TEST_F(SpawnTest, ReadsALine) {
  std::string line;
  std::getline(std::cin, line);
  spawn([&] { std::printf("read %s\n", line.c_str()); }, {.nprocs = 2});
}

TEST_F(SpawnTest, CopiesReadAFileFromWhereTheParentBegan) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::filesystem::path file = path_ / "input";
  write_file_atomically(file, "of the shell\nof the program\nunread\n");
  const std::string output = output_of("{ read -r first; exec " + self + " --gtest_filter=SpawnTest.ReadsALine; } <" +
                                       file.string() + " 2>&1");
  EXPECT_THAT(output, AllOf(HasSubstr("rank 0: read of the program\n"), HasSubstr("rank 1: read of the program\n")));
}

TEST(ConnectJob, AloneIsAJobOfOneWithAStoreInMemory) {
  const Job job = connect_job();
  EXPECT_EQ(job.env.rank, 0);
  EXPECT_EQ(job.env.world_size, 1);
  job.store->set("key", "value");
  EXPECT_EQ(job.store->try_get("key"), "value");
}

TEST(ConnectJob, StrictModeRefusesToBeAlone) {
  EXPECT_THROW(connect_job({.strict = true}), UsageError);
}

TEST(ConnectJob, AHalfSetEnvironmentNamesWhatIsMissing) {
  ::setenv("PADDLE_TRAINER_ID", "0", 1);
  try {
    connect_job();
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("PADDLE_TRAINERS_NUM"));
  }
  ::unsetenv("PADDLE_TRAINER_ID");
}

}  // namespace
}  // namespace trireme
