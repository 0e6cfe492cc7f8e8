// Reading the command line and the variables.
#include "trireme/launch/options/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/launch/options/option_table.h"

namespace trireme::launch {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::ThrowsMessage;
using Words = std::vector<std::string>;

// Options in front of the program ./train.
Request parse(Words options, const Environment& variables = {}) {
  options.push_back("./train");
  return parse_launch(options, variables);
}

// Collects what is logged while it lives.
class CapturedLog {
 public:
  CapturedLog()
      : before_(set_log_sink([this](LogLevel level, std::string_view text) { lines.emplace_back(level, text); })) {}
  ~CapturedLog() { set_log_sink(before_); }
  std::vector<std::pair<LogLevel, std::string>> lines;

 private:
  LogSink before_;
};

TEST(Options, DefaultsAreThoseOfTheSpecification) {
  const Request request = parse({});
  EXPECT_THAT(request.command, ElementsAre("./train"));
  EXPECT_FALSE(request.devices || request.processes || request.master || request.etcd || request.host);
  EXPECT_FALSE(request.start_port || request.help_topic);
  EXPECT_EQ(request.nodes, 1);
  EXPECT_EQ(request.node_rank, -1);
  EXPECT_EQ(request.log_dir, "log");
  EXPECT_EQ(request.job_id, "default");
  EXPECT_THAT(request.tee, ElementsAre(0));
  EXPECT_EQ(request.grace, milliseconds(10'000));
  EXPECT_EQ(request.join_timeout, milliseconds(600'000));
  EXPECT_EQ(request.max_restart, 0);
}

TEST(Options, EverythingFromTheProgramOnIsUntouched) {
  const Request request = parse_launch({"-n", "2", "train.py", "--gpus", "9", "-n", "5", "--", "--help", ""}, {});
  EXPECT_EQ(request.processes, "2");
  EXPECT_FALSE(request.devices || request.help_topic);
  EXPECT_THAT(request.command, ElementsAre("train.py", "--gpus", "9", "-n", "5", "--", "--help", ""));
}

TEST(Options, TwoDashesMayPrecedeTheProgram) {
  EXPECT_THAT(parse_launch({"-n", "2", "--", "-odd-name", "x"}, {}).command, ElementsAre("-odd-name", "x"));
  EXPECT_THAT(parse_launch({"--", "--", "x"}, {}).command, ElementsAre("--", "x"));
}

TEST(Options, ASingleDashIsAProgram) {
  EXPECT_THAT(parse_launch({"-", "x"}, {}).command, ElementsAre("-", "x"));
}

TEST(Options, BothSpellingsAndBothValueForms) {
  for (const Words& form : {Words{"--nproc_per_node", "2"}, Words{"--nproc-per-node", "2"}, Words{"--nproc_per_node=2"},
                            Words{"--nproc-per-node=2"}, Words{"--nproc-per_node=2"}, Words{"-n", "2"}, Words{"-n=2"}})
    EXPECT_EQ(parse(form).processes, "2") << form[0];
}

TEST(Options, TheLastOfRepeatedOptionsWins) {
  EXPECT_EQ(parse({"-n", "2", "--nproc_per_node", "3"}).processes, "3");
  const Request request = parse({"--master", "etcd://e:1", "--master", "m:2"});
  EXPECT_FALSE(request.etcd);
  EXPECT_EQ(request.master, (Endpoint{"m", 2}));
}

TEST(Options, ProcessOptions) {
  const Request request = parse({"--gpus", "0,GPU-8f6c, 02", "--bind", "numa", "--env", "A=1", "--env", "B=x=y"});
  EXPECT_THAT(*request.devices, ElementsAre("0", "GPU-8f6c", "2"));
  EXPECT_EQ(request.bind, Bind::numa);
  EXPECT_THAT(request.environment, ElementsAre(Pair("A", "1"), Pair("B", "x=y")));
  EXPECT_THAT(*parse({"--devices=MIG-1/2/3"}).devices, ElementsAre("MIG-1/2/3"));
  for (const char* word : {"gpu", "cpu", "auto", "1", "65536"}) EXPECT_EQ(parse({"-n", word}).processes, word);
}

TEST(Options, NodeOptions) {
  const Request request = parse({"--nnodes", "2", "--master", "[2001:db8::1]:6000", "--rank", "1", "--host", "10.0.0.2",
                                 "--start_port", "17000", "--job_id", "j1", "--join_timeout", "2m"});
  EXPECT_EQ(request.nodes, 2);
  EXPECT_EQ(request.master, (Endpoint{"2001:db8::1", 6000}));
  EXPECT_EQ(request.node_rank, 1);
  EXPECT_EQ(request.host, "10.0.0.2");
  EXPECT_EQ(request.start_port, 17000);
  EXPECT_EQ(request.job_id, "j1");
  EXPECT_EQ(request.join_timeout, milliseconds(120'000));
}

std::vector<std::string> names_of(const std::vector<HostSlots>& hosts) {
  std::vector<std::string> names;
  for (const HostSlots& host : hosts) names.push_back(host.host);
  return names;
}

TEST(Options, IpsSetTheNumberOfNodes) {
  const Request request = parse({"--ips", "node1,10.0.0.2,[2001:db8::1]", "--ssh"});
  EXPECT_THAT(names_of(request.hosts), ElementsAre("node1", "10.0.0.2", "2001:db8::1"));
  EXPECT_EQ(request.nodes, 3);
  EXPECT_TRUE(request.ssh);
  EXPECT_THAT(names_of(parse({"--ips=127.0.0.1"}).hosts), ElementsAre("127.0.0.1"));
}

TEST(Options, EtcdMaster) {
  EXPECT_EQ(parse({"--master", "etcd://e:4000"}).etcd, (Endpoint{"e", 4000}));
  EXPECT_EQ(parse({"--master", "etcd://e"}).etcd, (Endpoint{"e", 2379}));
}

TEST(Options, LogFailureAndDebugOptions) {
  const Request request = parse({"--log_dir", "out", "--log_level", "DEBUG", "--max_restart", "3", "--grace", "500ms",
                                 "--wrap", "0:gdb --args", "--wrap=3:perf record", "--dry-run"});
  EXPECT_EQ(request.log_dir, "out");
  EXPECT_EQ(request.log_level, LogLevel::debug);
  EXPECT_EQ(request.max_restart, 3);
  EXPECT_EQ(request.grace, milliseconds(500));
  EXPECT_THAT(request.wrap, ElementsAre(Pair(0, "gdb --args"), Pair(3, "perf record")));
  EXPECT_TRUE(request.dry_run);
}

TEST(Options, Times) {
  const std::pair<const char*, int> forms[] = {{"0", 0},       {"10", 10'000},  {"10s", 10'000},   {"0.5", 500},
                                               {"500ms", 500}, {"2m", 120'000}, {"2min", 120'000}, {"1h", 3'600'000}};
  for (const auto& [text, expected] : forms) EXPECT_EQ(parse({"--grace", text}).grace, milliseconds(expected)) << text;
}

TEST(Options, Tee) {
  EXPECT_TRUE(parse({"--tee", "all"}).tee_all);
  EXPECT_THAT(parse({"--tee", "none"}).tee, IsEmpty());
  EXPECT_THAT(parse({"--tee", "2,0,2"}).tee, ElementsAre(0, 2));
  EXPECT_THAT(parse({"--local-ranks-filter", "1"}).tee, ElementsAre(1));
}

TEST(Options, PaddlesSwitchesTakeAWordOrNone) {
  EXPECT_TRUE(parse({"--log_overwrite"}).log_overwrite);
  EXPECT_TRUE(parse({"--log_overwrite", "true"}).log_overwrite);
  EXPECT_FALSE(parse({"--log_overwrite", "False"}).log_overwrite);
  EXPECT_FALSE(parse({"--log_overwrite=0"}).log_overwrite);
  const Request program_true = parse_launch({"--log_overwrite", "true"}, {});
  EXPECT_THAT(program_true.command, ElementsAre("true"));
}

TEST(Options, FlagsTakeNoWord) {
  EXPECT_THAT(parse_launch({"--dry_run", "true", "x"}, {}).command, ElementsAre("true", "x"));
  EXPECT_FALSE(parse({"--dry_run=false"}).dry_run);
}

TEST(Options, TorchrunsNames) {
  const Request request = parse({"--nnodes=2", "--node-rank=1", "--rdzv-endpoint=h:1234", "--rdzv-id=x",
                                 "--rdzv-backend=c10d", "--max-restarts=2", "--no-python"});
  EXPECT_EQ(request.node_rank, 1);
  EXPECT_EQ(request.master, (Endpoint{"h", 1234}));
  EXPECT_EQ(request.job_id, "x");
  EXPECT_EQ(request.max_restart, 2);
  EXPECT_TRUE(request.no_python);
  EXPECT_EQ(parse({"--rdzv_endpoint", "h", "--rdzv_backend", "static"}).master, (Endpoint{"h", 29400}));
  EXPECT_EQ(parse({"--rdzv_endpoint", "h", "--rdzv_backend", "etcd-v2"}).etcd, (Endpoint{"h", 2379}));
  EXPECT_EQ(parse({"--local-addr", "10.0.0.9"}).host, "10.0.0.9");
}

TEST(Options, TorchrunsMasterAddressAndPort) {
  EXPECT_EQ(parse({"--master-addr", "h", "--master-port", "5"}).master, (Endpoint{"h", 5}));
  EXPECT_EQ(parse({"--master_port", "5"}).master, (Endpoint{"127.0.0.1", 5}));
  EXPECT_EQ(parse({"--master_addr", "h"}).master, (Endpoint{"h", 29500}));
}

TEST(Options, StandaloneIsThisMachineWhateverTheVariablesSay) {
  const Request request =
      parse({"--standalone"}, {{"PADDLE_NNODES", "4"}, {"PADDLE_MASTER", "h:1"}, {"PADDLE_RANK", "3"}});
  EXPECT_EQ(request.nodes, 1);
  EXPECT_FALSE(request.master);
  EXPECT_EQ(request.node_rank, -1);
}

TEST(Options, HorovodsNames) {
  EXPECT_EQ(parse({"-np", "4"}).processes, "4");
  EXPECT_EQ(parse({"--num-proc", "4"}).processes, "4");
  const Request request = parse({"-np", "5", "-H", "a:4,b:4,c:4"});
  ASSERT_EQ(request.hosts.size(), 2u);
  EXPECT_EQ(request.hosts[0].slots, 4);
  EXPECT_EQ(request.hosts[1].slots, 1);
  EXPECT_EQ(request.nodes, 2);
  EXPECT_FALSE(request.processes);
}

TEST(Options, ProcessesPerNodeGiveSlotsToHostsWithout) {
  const Request request = parse({"-H", "a,b:2", "-n", "2"});
  EXPECT_EQ(request.hosts[0].slots, 2);
  EXPECT_EQ(request.hosts[1].slots, 2);
}

TEST(Options, IgnoredOptionsLeaveOneLineEach) {
  CapturedLog log;
  parse({"--start-method", "spawn", "--monitor_interval=5", "--enable_gpu_log", "False", "--sort_ip", "-r", "3"});
  ASSERT_EQ(log.lines.size(), 5u);
  EXPECT_THAT(log.lines[0].second, AllOf(HasSubstr("--start-method"), HasSubstr("ignored")));
}

TEST(Options, HelpIsNoticedAndNothingElseChecked) {
  EXPECT_EQ(parse_launch({"--help"}, {}).help_topic, "");
  EXPECT_EQ(parse_launch({"-h"}, {{"PADDLE_NNODES", "x"}}).help_topic, "");
  EXPECT_EQ(parse_launch({"--rank", "9", "--help", "nodes"}, {}).help_topic, "nodes");
  EXPECT_EQ(parse_launch({"--help=logs"}, {}).help_topic, "logs");
  EXPECT_EQ(parse_launch({"--help", "--dry-run"}, {}).help_topic, "");
}

TEST(OptionHints, UnknownOptionsGetAHint) {
  const std::pair<const char*, const char*> cases[] = {
      {"--nproc_per_nod",
       "unknown option --nproc_per_nod; did you mean --nproc_per_node? (see: trireme launch --help)"},
      {"--nproc-per-nod=2", "did you mean --nproc-per-node?"},
      {"--gpu", "did you mean --gpus?"},
      {"--nproc", "did you mean --nproc_per_node?"},
      {"-gpus", "did you mean --gpus?"},
      {"--np", "did you mean -np?"},
      {"-n4", "did you mean -n 4?"},
      {"-np8", "did you mean -np 8?"},
      {"--IPS", "unknown option --IPS"},
      {"-z", "unknown option -z (see"}};
  for (const auto& [typed, message] : cases)
    EXPECT_THAT([&] { parse({typed}); }, ThrowsMessage<UsageError>(HasSubstr(message))) << typed;
}

TEST(OptionHints, AForgottenValueIsNamed) {
  for (const Words& words : {Words{"--gpus"}, Words{"--gpus", "--nnodes", "2", "x"}, Words{"--gpus", "--nnodes=2", "x"},
                             Words{"--gpus", "--", "x"}})
    EXPECT_THAT([&] { parse_launch(words, {}); },
                ThrowsMessage<UsageError>(HasSubstr("--gpus needs a value: --gpus LIST")));
}

TEST(OptionVariables, StandInForOptions) {
  const Request request = parse({}, {{"PADDLE_NPROC_PER_NODE", "3"},
                                     {"PADDLE_DEVICES", "1,2,3"},
                                     {"PADDLE_NNODES", "2"},
                                     {"PADDLE_MASTER", "h:77"},
                                     {"PADDLE_RANK", "1"},
                                     {"POD_IP", "10.0.0.7"},
                                     {"PADDLE_START_PORT", "7000"},
                                     {"PADDLE_JOB_ID", "j"},
                                     {"PADDLE_LOG_DIR", "d"},
                                     {"PADDLE_LOG_LEVEL", "30"},
                                     {"PADDLE_LOG_OVERWRITE", "1"},
                                     {"PADDLE_MAX_RESTART", "4"},
                                     {"PADDLE_RUN_MODE", "collective"}});
  EXPECT_EQ(request.processes, "3");
  EXPECT_THAT(*request.devices, ElementsAre("1", "2", "3"));
  EXPECT_EQ(request.nodes, 2);
  EXPECT_EQ(request.master, (Endpoint{"h", 77}));
  EXPECT_EQ(request.node_rank, 1);
  EXPECT_EQ(request.host, "10.0.0.7");
  EXPECT_EQ(request.start_port, 7000);
  EXPECT_EQ(request.job_id, "j");
  EXPECT_EQ(request.log_dir, "d");
  EXPECT_EQ(request.log_level, LogLevel::warning);
  EXPECT_TRUE(request.log_overwrite);
  EXPECT_EQ(request.max_restart, 4);
}

TEST(OptionVariables, ElasticJobsOfPaddleAndTorchrun) {
  const Request request = parse(
      {"--master", "h:1"}, {{"PADDLE_NNODES", "2:4"}, {"PADDLE_ELASTIC_LEVEL", "1"}, {"PADDLE_ELASTIC_TIMEOUT", "9"}});
  EXPECT_EQ(request.nodes_text(), "2:4");
  EXPECT_EQ(request.fewest_nodes(), 2);
  EXPECT_EQ(request.elastic_level, 1);
  EXPECT_EQ(request.elastic_timeout, milliseconds(9000));
  EXPECT_EQ(parse({"--rdzv-endpoint", "h:1"}, {{"PET_NNODES", "1:3"}}).nodes_text(), "1:3");
}

TEST(Options, AFixedNumberOfNodesIsNoRange) {
  EXPECT_EQ(parse({"--nnodes", "3", "--master", "h:1"}).nodes_text(), "3");
  EXPECT_EQ(parse({"--nnodes", "3:3", "--master", "h:1"}).min_nodes, 0);
  EXPECT_EQ(parse({"--ips", "a,b"}).fewest_nodes(), 2);
}

TEST(OptionVariables, AnEmptyOneIsNone) {
  EXPECT_FALSE(parse({}, {{"PADDLE_DEVICES", ""}, {"PADDLE_RUN_MODE", ""}}).devices);
}

TEST(OptionVariables, OneThatIsUsedIsLogged) {
  CapturedLog log;
  parse({}, {{"PADDLE_NPROC_PER_NODE", "3"}});
  EXPECT_THAT(log.lines,
              ElementsAre(Pair(LogLevel::info, "[launch] PADDLE_NPROC_PER_NODE=3 is used as --nproc_per_node")));
}

TEST(OptionVariables, TheCommandLineWinsWithAWarning) {
  CapturedLog log;
  EXPECT_EQ(parse({"-n", "2"}, {{"PADDLE_NPROC_PER_NODE", "3"}}).processes, "2");
  EXPECT_THAT(log.lines,
              ElementsAre(Pair(LogLevel::warning, "[launch] PADDLE_NPROC_PER_NODE=3 is ignored: -n 2 wins")));
}

TEST(OptionVariables, TheSameValueTwiceIsSilent) {
  CapturedLog log;
  parse({"-n", "2"}, {{"PADDLE_NPROC_PER_NODE", "2"}});
  EXPECT_THAT(log.lines, IsEmpty());
}

TEST(OptionVariables, TheLogLevelAppliesToTheseLinesToo) {
  CapturedLog log;
  parse({"--log_level", "warning"}, {{"PADDLE_NPROC_PER_NODE", "3"}});
  EXPECT_THAT(log.lines, IsEmpty());
}

TEST(OptionVariables, QuietIsALogLevelOfTheCommandLine) {
  EXPECT_EQ(parse({"--quiet"}, {{"TRIREME_LOG_LEVEL", "debug"}}).log_level, LogLevel::error);
  EXPECT_EQ(parse({"--quiet", "--log_level", "info"}).log_level, LogLevel::info);
  EXPECT_EQ(parse({"--log_level", "info", "--quiet"}).log_level, LogLevel::error);
  EXPECT_EQ(parse({}, {{"TRIREME_LOG_LEVEL", "off"}, {"PADDLE_LOG_LEVEL", "INFO"}}).log_level, LogLevel::off);
}

TEST(OptionVariables, StartPortPrecedence) {
  const Environment both{{"FLAGS_START_PORT", "17000"}, {"PADDLE_START_PORT", "18000"}};
  EXPECT_EQ(parse({}, {{"FLAGS_START_PORT", "17000"}}).start_port, 17000);
  EXPECT_EQ(parse({}, both).start_port, 18000);
  EXPECT_EQ(parse({"--start_port", "19000"}, both).start_port, 19000);
}

TEST(OptionVariables, AnotherWayToMeetOnTheCommandLineOverrulesThem) {
  CapturedLog log;
  const Request request = parse({"--ips", "a,b"}, {{"PADDLE_MASTER", "h:1"}});
  EXPECT_FALSE(request.master);
  ASSERT_EQ(log.lines.size(), 1u);
  EXPECT_THAT(log.lines[0].second, HasSubstr("PADDLE_MASTER=h:1 is ignored: --ips a,b wins"));
}

TEST(OptionVariables, InsideAWorkerTheySpeakOfTheOuterJob) {
  const Request request = parse(
      {}, {{"TRIREME_JOB_ID", "outer"}, {"PADDLE_MASTER", "h:1"}, {"PADDLE_NNODES", "2"}, {"FLAGS_START_PORT", "1"}});
  EXPECT_FALSE(request.master || request.start_port);
  EXPECT_EQ(request.nodes, 1);
}

TEST(OptionVariables, PresetEndpointsAreNotRead) {
  EXPECT_TRUE(parse({}, {{"PADDLE_TRAINER_ENDPOINTS", "a:1,b:1"}, {"PADDLE_TRAINER_ID", "3"}}).hosts.empty());
}

TEST(OptionVariables, AreAllDocumented) {
  for (const Option& option : option_table())
    for (const std::string& name : option.variables) EXPECT_NO_THROW(env::get(name)) << name;
}

TEST(OptionVariables, AWrongOneIsNamed) {
  EXPECT_THAT(
      [] {
        parse({}, {{"PADDLE_RANK", "x"}});
      },
      ThrowsMessage<UsageError>(HasSubstr("PADDLE_RANK=x: must be")));
  EXPECT_THAT(
      [] {
        parse({}, {{"PADDLE_RUN_MODE", "ps"}});
      },
      ThrowsMessage<UsageError>(HasSubstr("PADDLE_RUN_MODE=ps: not supported, because")));
}

TEST(OptionTable, NamesAreUniqueAndSpelledWithUnderscores) {
  for (const Option& option : option_table())
    for (const std::string& name : option.names) {
      EXPECT_EQ(find_option(name), &option) << name;
      EXPECT_EQ(name.find('-', 2), std::string::npos) << name;
    }
}

}  // namespace
}  // namespace trireme::launch
