// Every wrong command line gets a message that names the option, what was written, and what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/launch/options/options.h"

namespace trireme::launch {
namespace {

using Words = std::vector<std::string>;

struct Case {
  Words options;
  Words message;  // its essential words
};

std::string message_of(const Words& args, const Environment& variables = {}) {
  try {
    parse_launch(args, variables);
  } catch (const UsageError& error) {
    EXPECT_EQ(error.exit_code(), 2);
    return error.what();
  }
  return "(accepted)";
}

void expect_refused(const std::vector<Case>& cases) {
  for (Case test : cases) {
    test.options.push_back("./train");
    const std::string message = message_of(test.options);
    for (const std::string& word : test.message) EXPECT_THAT(message, testing::HasSubstr(word));
  }
}

TEST(OptionCheck, Program) {
  EXPECT_THAT(message_of({}), testing::HasSubstr("PROGRAM is missing"));
  EXPECT_THAT(message_of({"-n", "2"}), testing::HasSubstr("trireme launch [options] PROGRAM"));
  EXPECT_THAT(message_of({"-n", "2", "--"}), testing::HasSubstr("PROGRAM is missing"));
}

TEST(OptionCheck, NumberOfProcesses) {
  expect_refused({{{"-n", "0"}, {"-n 0", "from 1 to 65536", "gpu or cpu"}},
                  {{"-n", "-2"}, {"-n -2", "from 1 to 65536"}},
                  {{"-n", "1000000"}, {"-n 1000000", "65536", "every process needs one"}},
                  {{"-n", "abc"}, {"-n abc", "whole number"}},
                  {{"--nproc_per_node", "2.5"}, {"--nproc_per_node 2.5", "whole number"}},
                  {{"-n", ""}, {"-n \"\"", "whole number"}},
                  {{"-n", "99999999999999999999"}, {"whole number"}},
                  {{"-np", "0"}, {"-np 0", "from 1"}},
                  {{"-np", "70000"}, {"-np 70000", "from 1 to 65536"}}});
}

TEST(OptionCheck, Devices) {
  expect_refused({{{"--gpus", ""}, {"--gpus \"\"", "empty", "CUDA_VISIBLE_DEVICES=-1"}},
                  {{"--gpus", "0,,1"}, {"--gpus 0,,1", "missing between the commas"}},
                  {{"--gpus", "0,"}, {"missing between the commas"}},
                  {{"--gpus", "a"}, {"--gpus a", "not a number or a UUID"}},
                  {{"--gpus", "-1"}, {"--gpus -1", "not a number"}},
                  {{"--gpus", "0-3"}, {"\"0-3\" is not a number"}},
                  {{"--gpus", "GPU-"}, {"not a number or a UUID"}},
                  {{"--devices", "1,0,01"}, {"--devices 1,0,01", "1 is in the list twice", "use -n"}}});
}

TEST(OptionCheck, Ips) {
  expect_refused({{{"--ips", ""}, {"--ips \"\"", "empty", "--ips 10.0.0.1,10.0.0.2"}},
                  {{"--ips", "a,"}, {"--ips a,", "missing between the commas", "without spaces"}},
                  {{"--ips", "a,,b"}, {"missing between the commas"}},
                  {{"--ips", "a,b,A"}, {"A is in the list twice"}},
                  {{"--ips", "::1,0:0:0:0:0:0:0:1"}, {"twice"}},
                  {{"--ips", "127.0.0.1,10.0.0.2"}, {"127.0.0.1 means another machine", "write the address"}},
                  {{"--ips", "10.0.0.2,localhost"}, {"localhost means another machine"}},
                  {{"--ips", "192.168.0.0.1,b"}, {"\"192.168.0.0.1\" is not an IPv4 address"}},
                  {{"--ips", "a:6070,b:6070"}, {"\"a:6070\" has a port"}},
                  {{"--ips", "a b,c"}, {"not a host name"}}});
}

TEST(OptionCheck, MeetingPlace) {
  expect_refused({{{"--master", "h:70000"}, {"--master", "h:70000", "1 to 65535"}},
                  {{"--master", "h:0"}, {"1 to 65535"}},
                  {{"--master", "h:x"}, {"1 to 65535", "\"x\""}},
                  {{"--master", "h"}, {"--master", "port"}},
                  {{"--master", "http://h:1"}, {"--master http://h:1", "etcd://host:port"}},
                  {{"--master-port", "0"}, {"--master-port 0", "from 1 to 65535"}},
                  {{"--ips", "a,b", "--master", "c:1"}, {"--ips a,b", "--master c:1", "give one of them"}},
                  {{"--ips", "a,b", "-H", "a:1"}, {"--ips a,b", "-H a:1", "give one of them"}},
                  {{"--rdzv_endpoint", "c:1", "--master", "c:1"}, {"--master c:1", "--rdzv_endpoint c:1"}},
                  {{"--master_port", "1", "--ips", "a,b"}, {"--master_port 1 goes with --master_addr"}},
                  {{"--standalone", "--ips", "a,b"}, {"--standalone", "--ips a,b"}},
                  {{"--standalone", "--nnodes", "2"}, {"--standalone", "--nnodes 2"}},
                  {{"--rdzv_backend", "zeus"}, {"--rdzv_backend zeus", "c10d or static", "etcd"}},
                  {{"--rdzv_backend", "etcd"}, {"--rdzv_backend etcd", "add --rdzv_endpoint"}}});
}

TEST(OptionCheck, TwoVariablesThatBothSayWhereToMeet) {
  EXPECT_THAT(message_of({"x"}, {{"PADDLE_IPS", "a,b"}, {"PADDLE_MASTER", "c:1"}}),
              testing::HasSubstr("PADDLE_IPS=a,b and PADDLE_MASTER=c:1"));
}

TEST(OptionCheck, NodesAndRank) {
  expect_refused({{{"--nnodes", "0"}, {"--nnodes 0", "from 1 to 65536"}},
                  {{"--nnodes", "two"}, {"--nnodes two", "whole number"}},
                  {{"--nnodes", "2:"}, {"MIN:MAX"}},
                  {{"--nnodes", "3:2"}, {"--nnodes 3:2", "write 2:3"}},
                  {{"--nnodes", "2", "--master", "h:1", "--rank", "2"}, {"--rank 2", "2 machines", "from 0 to 1"}},
                  {{"--rank", "1"}, {"--rank 1", "1 machine", "--nnodes"}},
                  {{"--rank", "-2"}, {"--rank -2", "from -1"}},
                  {{"--rank", "x"}, {"--rank x", "whole number"}},
                  {{"--nnodes", "3", "--ips", "a,b"}, {"--nnodes 3 contradicts --ips a,b", "2 machines"}},
                  {{"--nnodes", "2", "-H", "a:1"}, {"--nnodes 2 contradicts -H a:1", "1 machine;"}},
                  {{"--host", "10.0.0.300"}, {"--host 10.0.0.300", "IPv4"}},
                  {{"--host", "a:1"}, {"has a port"}},
                  {{"--ssh"}, {"--ssh needs", "--hostfile"}},
                  {{"--job_id", "a b"}, {"--job_id a b", "no space"}},
                  {{"--job_id", "../x"}, {"no slash"}},
                  {{"--job_id", ""}, {"empty"}}});
}

TEST(OptionCheck, Elastic) {
  expect_refused({{{"--nnodes", "4:2", "--master", "h:1"}, {"the smallest number comes first", "2:4"}},
                  {{"--nnodes", "2:", "--master", "h:1"}, {"--nnodes 2:", "MIN:MAX"}},
                  {{"--nnodes", "2:4", "--ips", "a,b"}, {"--nnodes 2:4 contradicts --ips a,b", "2 machines"}},
                  {{"--elastic_level", "2"}, {"--elastic_level 2", "from -1 to 1"}},
                  {{"--elastic_timeout", "x"}, {"--elastic_timeout x"}}});
}

TEST(OptionCheck, SlotsAndTotals) {
  expect_refused({{{"-np", "9", "-H", "a:4,b:4"}, {"-np 9", "8 slots together"}},
                  {{"-np", "2", "-H", "a,b"}, {"host a has no number of slots", "a:4"}},
                  {{"-np", "4", "-n", "2"}, {"-np 4 and -n 2"}},
                  {{"-np", "4", "--ips", "a,b"}, {"-np 4", "whole job", "--nproc_per_node"}},
                  {{"-np", "4", "--nnodes", "2", "--master", "h:1"}, {"whole job"}},
                  {{"-n", "2", "-H", "a:2,b:4"}, {"-n 2 contradicts the 4 slots of host b"}},
                  {{"-n", "gpu", "-H", "a:2"}, {"-n gpu contradicts the 2 slots of host a"}},
                  {{"-H", ""}, {"empty"}},
                  {{"-H", "localhost:2,b:2"}, {"localhost means another machine"}},
                  {{"--hostfile", "/nowhere/hosts"}, {"--hostfile /nowhere/hosts", "cannot be read"}},
                  {{"--hostfile", ""}, {"--hostfile", "empty"}}});
}

TEST(OptionCheck, HostfileIsRead) {
  const TempDir folder;
  const std::string file = folder.path() / "hosts";
  std::ofstream(file) << "a slots=2\nb slots=4\n";
  const Request request = parse_launch({"--hostfile", file, "--ssh", "./train"}, {});
  ASSERT_EQ(request.hosts.size(), 2u);
  EXPECT_EQ(request.hosts[1].slots, 4);
  EXPECT_EQ(request.nodes, 2);
  expect_refused({{{"--hostfile", file, "--master", "h:1"}, {"--hostfile " + file, "--master h:1"}}});
}

TEST(OptionCheck, Ports) {
  expect_refused({{{"--start_port", "1"}, {"--start_port 1", "from 2 to 65535"}},
                  {{"--start_port", "65536"}, {"from 2 to 65535"}},
                  {{"--start_port", "65535", "-n", "2"}, {"--start_port 65535", "2 processes", "start at 65534"}},
                  {{"--start_port", "65535", "--gpus", "0,1"}, {"2 processes"}},
                  {{"--start_port", "65530", "-H", "a:2,b:8"}, {"8 processes", "start at 65528"}},
                  {{"--start_port", "2", "-n", "65536"}, {"leave --start_port out"}}});
  EXPECT_EQ(parse_launch({"--start_port", "65534", "-n", "2", "x"}, {}).start_port, 65534);
  EXPECT_THROW(check_ports({.start_port = uint16_t{65535}}, 2), UsageError);
  EXPECT_NO_THROW(check_ports({.start_port = uint16_t{65535}}, 1));
  EXPECT_NO_THROW(check_ports({}, 60000));
}

TEST(OptionCheck, Times) {
  for (const char* text : {"", "-1", "10x", "s", "abc", "1e9h", "31h0", "inf", "99999999", "1 s"})
    expect_refused({{{"--grace", text}, {"--grace", "30 days", "500ms", "a plain number is seconds"}}});
  expect_refused({{{"--join_timeout", "x"}, {"--join_timeout x"}}});
}

TEST(OptionCheck, WordsAndForms) {
  expect_refused({{{"--env", "A"}, {"--env A", "no \"=\"", "--env NAME=VALUE"}},
                  {{"--env", "=1"}, {"--env =1", "cannot name a variable"}},
                  {{"--env", "1A=1"}, {"\"1A\" cannot name"}},
                  {{"--env", "A B=1"}, {"cannot name"}},
                  {{"--wrap", "gdb"}, {"--wrap gdb", "RANK:CMD"}},
                  {{"--wrap", "x:gdb"}, {"RANK:CMD"}},
                  {{"--wrap", "-1:gdb"}, {"RANK:CMD"}},
                  {{"--wrap", "0: "}, {"command behind the colon is missing"}},
                  {{"--wrap", "0:a", "--wrap", "0:b"}, {"rank 0 is wrapped already"}},
                  {{"--tee", ""}, {"--tee", "all, none or local ranks"}},
                  {{"--tee", "0,x"}, {"\"x\" is not a local rank"}},
                  {{"--tee", "0,"}, {"not a local rank"}},
                  {{"--tee", "2", "-n", "2"}, {"--tee 2", "2 processes", "from 0 to 1"}},
                  {{"--bind", "socket"}, {"--bind socket", "none, core or numa"}},
                  {{"--log_level", "loud"}, {"--log_level loud", "debug, info"}},
                  {{"--log_dir", ""}, {"--log_dir", "empty"}},
                  {{"--log_overwrite=maybe"}, {"--log_overwrite maybe", "true or false"}},
                  {{"--max_restart", "-1"}, {"--max_restart -1", "from 0"}}});
}

TEST(OptionCheck, UnsupportedOptionsSayWhy) {
  for (const char* name : {"--servers", "--trainers", "--trainer_num", "--server-num", "--gloo_port", "--with_gloo"})
    expect_refused({{{name, "1"}, {name, "is not supported, because", "parameter servers", "--nnodes"}}});
  for (const char* name : {"--auto_parallel_config", "--auto_cluster_config", "--auto_tuner_json", "--legacy", "--xpus",
                           "--npus", "--role", "--module", "-m", "--run-path"})
    expect_refused({{{name, "1"}, {name, "is not supported, because"}}});
  expect_refused({{{"-m", "pkg"}, {"python3 -m MODULE"}},
                  {{"--run_mode", "ps"}, {"--run_mode ps", "not supported, because"}},
                  {{"--run_mode", "ps-heter"}, {"not supported"}},
                  {{"--run_mode", "rpc"}, {"not supported"}},
                  {{"--run_mode", "x"}, {"must be collective"}}});
}

TEST(OptionCheck, TheFirstOfSeveralMistakesIsReported) {
  expect_refused({{{"-n", "0", "--gpus", "x"}, {"-n 0"}}, {{"--gpus", "x", "-n", "0"}, {"--gpus x"}}});
}

}  // namespace
}  // namespace trireme::launch
