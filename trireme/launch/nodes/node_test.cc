// What nodes tell each other, where secrets come from, which cores workers get, what ssh is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>
#include <set>

#include "trireme/core/cpu_probe.h"
#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/launch/machine/affinity.h"
#include "trireme/launch/nodes/introduction.h"
#include "trireme/launch/nodes/node_check.h"
#include "trireme/launch/nodes/preflight.h"
#include "trireme/launch/nodes/ssh.h"
#include "trireme/launch/options/option_table.h"
#include "trireme/launch/signal_watch.h"

namespace trireme::launch {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Introduction example() {
  Introduction introduction;
  introduction.info = {
      .host = "a", .address = "10.0.0.1", .interface = "eth0", .processes = 1, .ports = {6070}, .log_dir = "/log"};
  introduction.name = "a/1/00";
  introduction.version = "1";
  introduction.arguments = {"./train", "--name", "\xff binary"};
  introduction.file_digests = {{"./train", "aa"}, {"list.txt", "bb"}};
  introduction.probe = {"10.0.0.1", 4000};
  return introduction;
}

TEST(Introduction, SurvivesTheWayThroughJson) {
  const Introduction before = example();
  const Introduction after = introduction_from_json(to_json(before));
  EXPECT_EQ(after.info, before.info);
  EXPECT_EQ(after.arguments, before.arguments);
  EXPECT_EQ(after.file_digests, before.file_digests);
  EXPECT_EQ(after.probe, before.probe);
  EXPECT_THAT(differences(before, after), IsEmpty());
}

TEST(Introduction, NonsenseIsAPeerError) {
  for (const char* text : {"", "{}", R"({"info":1})"}) EXPECT_THROW(introduction_from_json(text), PeerError);
}

TEST(Introduction, DifferencesNameBothSides) {
  const Introduction first = example();
  Introduction other = example();
  other.info.host = "b";
  other.arguments = {"./train", "--lr", "2"};
  other.file_digests["list.txt"] = "cc";
  EXPECT_THAT(differences(first, other),
              ElementsAre(AllOf(HasSubstr("a starts"), HasSubstr("b starts"), HasSubstr("--lr 2")),
                          AllOf(HasSubstr("list.txt"), HasSubstr("bb"), HasSubstr("cc"))));
}

TEST(Introduction, DigestsProgramAndDataLists) {
  const TempDir dir;
  const std::string list = (dir.path() / "train_list.txt").string();
  write_file_atomically(list, "a.jpg 0\n");
  const Request request{.command = {"/bin/sh", "--list", list, "/no/such/file"}};
  const Introduction self = introduce(request, {}, "me");
  EXPECT_EQ(self.file_digests.size(), 2u);
  EXPECT_EQ(self.file_digests.at(list).size(), 64u);
}

class TokenFile : public testing::Test {
 protected:
  void TearDown() override { env::set("TRIREME_TOKEN_FILE", std::nullopt); }
  void write(const std::string& content, mode_t mode) {
    write_file_atomically(path_, content);
    ::chmod(path_.c_str(), mode);
    env::set("TRIREME_TOKEN_FILE", path_);
  }
  TempDir dir_;
  std::string path_ = (dir_.path() / "token").string();
};

TEST_F(TokenFile, IsReadFromTheNamedFile) {
  write(std::string(64, 'a') + "\n", 0600);
  ASSERT_TRUE(configured_token());
  EXPECT_EQ(configured_token()->bytes(), std::string(32, '\xaa'));
}

TEST_F(TokenFile, AFileThatOthersCanReadIsRefused) {
  write(std::string(64, 'a'), 0644);
  try {
    configured_token();
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("644"), HasSubstr("chmod 600")));
  }
}

TEST_F(TokenFile, AMissingNamedFileIsAnErrorNotAFallback) {
  env::set("TRIREME_TOKEN_FILE", path_);
  EXPECT_THROW(configured_token(), UsageError);
}

TEST(ShareCores, CoresAreDividedInOrder) {
  const Topology machine{{0, 1, 2, 3}, {4, 5, 6, 7}};
  EXPECT_THAT(share_cores(Bind::core, machine, 2), ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7)));
  EXPECT_THAT(share_cores(Bind::core, machine, 3),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3, 4), ElementsAre(5, 6, 7)));
}

TEST(ShareCores, WorkersMayOutnumberCores) {
  EXPECT_THAT(share_cores(Bind::core, {{0, 1}}, 4),
              ElementsAre(ElementsAre(0), ElementsAre(0), ElementsAre(1), ElementsAre(1)));
}

TEST(ShareCores, NumaGivesWholeNodes) {
  const Topology machine{{0, 1}, {2, 3}};
  EXPECT_THAT(share_cores(Bind::numa, machine, 2), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(share_cores(Bind::numa, machine, 4),
              ElementsAre(ElementsAre(0, 1), ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(2, 3)));
  EXPECT_THAT(share_cores(Bind::numa, machine, 1), ElementsAre(ElementsAre(0, 1)));
}

TEST(ShareCores, NoneAndUnknownMachinesPinNobody) {
  EXPECT_THAT(share_cores(Bind::none, {{0, 1}}, 1), ElementsAre(IsEmpty()));
  EXPECT_THAT(share_cores(Bind::core, {}, 1), ElementsAre(IsEmpty()));
}

TEST(MachineTopology, HoldsAllUsableCores) {
  size_t cores = 0;
  for (const auto& group : machine_topology()) cores += group.size();
  EXPECT_EQ(cores, static_cast<size_t>(usable_cores()));
}

TEST(Ssh, EveryHostGetsItsOwnSlotsAndTheSameJob) {
  Request request{.command = {"./train", "--name", "two words"}, .hosts = {{"a", 2}, {"b", 4}}, .job_id = "j"};
  request.environment = {{"K", "v w"}};
  const std::string line = remote_command_line(request, 1, "/opt/trireme", "/home/u/my job");
  EXPECT_THAT(line, testing::StartsWith("cd '/home/u/my job' && exec /opt/trireme launch --ssh_child"));
  EXPECT_THAT(line, AllOf(HasSubstr("--ips a,b --host b --nproc_per_node 4"), HasSubstr("--job_id j"),
                          HasSubstr("--env 'K=v w'"), testing::EndsWith("-- ./train --name 'two words'")));
}

TEST(Ssh, EveryOptionOfLogsAndFailuresIsPassedOn) {
  Request request{.command = {"./train"}, .hosts = {{"a", 1}}};
  request.log_overwrite = true;
  request.elastic_level = 1;
  request.progress = Progress::on;
  request.dashboard = Endpoint{"10.0.0.1", 8080};
  request.trace = StepRange{100, 110};
  const std::string line = remote_command_line(request, 0, "/opt/trireme", "/");
  const std::set<std::string> otherwise{"--quiet"};  // as --log_level
  for (const Option& option : option_table())
    if ((option.topic == Topic::logs || option.topic == Topic::failure) && !otherwise.contains(option.names[0]))
      EXPECT_THAT(line, HasSubstr(" " + option.names[0] + " ")) << "remote launchers would take the default";
}

TEST(Ssh, QuotesForTheOtherShell) {
  const Request request{.command = {"./train", "it's $HOME; rm -rf /"}, .hosts = {{"a", 1}}};
  EXPECT_THAT(remote_command_line(request, 0, "/opt/trireme", "/"),
              testing::EndsWith("-- ./train 'it'\\''s $HOME; rm -rf /'"));
}

TEST(TerminalWatch, TakesSignalsUntilOneAsksToEnd) {
  proc::SignalGate gate(launcher_signals());
  const FdPair terminal = make_pipe();
  const TerminalWatch watch(terminal.first.get());
  for (const int signal : {SIGUSR1, SIGUSR2, SIGINT}) {
    write_all(terminal.second.get(), std::string(1, byte_of_signal(signal)));
    EXPECT_EQ(gate.look(Deadline::in(std::chrono::seconds(10))), signal);
  }
}

TEST(NodeReport, SurvivesTheWayThroughJson) {
  const NodeReport report{.problems = {"node 1 cannot reach node 0"}, .shared_logs = true};
  EXPECT_EQ(node_report_from_json(to_json(report)), report);
  EXPECT_EQ(node_report_from_json(to_json(NodeReport{})), NodeReport{});
}

TEST(NodeReport, NonsenseIsAPeerError) {
  for (const char* text : {"", "{}", "7", R"({"problems": [1], "shared_logs": false})", R"({"problems": []})"})
    EXPECT_THROW(node_report_from_json(text), PeerError) << text;
}

TEST(Reach, NonsenseIsAPeerError) {
  const auto row = [](const char* node) {
    return fmt::format(R"([{{"node":{},"error":"","round_trip_ms":1,"clock_skew_ms":0.5,"megabytes_per_second":9}}])",
                       node);
  };
  EXPECT_EQ(reaches_from_json(row("1"), 2).at(0).node, 1);
  for (const std::string& text : {std::string("["), std::string("{}"), row("2"), row("-1"), row("1e100"), row("\"0\"")})
    EXPECT_THROW(reaches_from_json(text, 2), PeerError) << text;
}

}  // namespace
}  // namespace trireme::launch
