#include "trireme/launch/worker_environment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/parallel_env.h"
#include "trireme/core/text.h"
#include "trireme/launch/test_nodes.h"

namespace trireme::launch {
namespace {

using Words = std::vector<std::string>;

NodeInfo node_with(const std::string& address, int processes, Words devices = {}) {
  NodeInfo info = example_node(address, processes, std::move(devices));
  if (address == "127.0.0.1") info.interface = "lo";
  return info;
}

struct Case {
  std::vector<NodeInfo> nodes = {node_with("10.0.0.1", 2, {"0", "1"}), node_with("10.0.0.2", 1, {"7"})};
  PlanContext context;
  Request request;
  WorkerPlan worker(size_t rank) {
    request.command = {"./train"};
    return make_plan(request, nodes, context).workers.at(rank);
  }
  std::string value(size_t rank, const std::string& name) {
    return value_of(worker(rank).environment, name).value_or("(unset)");
  }
};

void expect_values(Case& job, size_t rank, const std::vector<std::pair<std::string, std::string>>& expected) {
  for (const auto& [name, value] : expected) EXPECT_EQ(job.value(rank, name), value) << name;
}

TEST(WorkerEnvironment, PaddlesVariables) {
  Case job;
  expect_values(job, 2,
                {{"PADDLE_MASTER", "10.0.0.1:6170"},
                 {"PADDLE_GLOBAL_SIZE", "3"},
                 {"PADDLE_LOCAL_SIZE", "1"},
                 {"PADDLE_GLOBAL_RANK", "2"},
                 {"PADDLE_LOCAL_RANK", "0"},
                 {"PADDLE_NNODES", "2"},
                 {"PADDLE_CURRENT_ENDPOINT", "10.0.0.2:17000"},
                 {"PADDLE_TRAINER_ID", "2"},
                 {"PADDLE_TRAINERS_NUM", "3"},
                 {"PADDLE_TRAINER_ENDPOINTS", "10.0.0.1:17000,10.0.0.1:17001,10.0.0.2:17000"},
                 {"PADDLE_RANK_IN_NODE", "0"},
                 {"PADDLE_AUTO_CLUSTER", "0"},
                 {"PADDLE_LOG_DIR", "/job/log"},
                 {"PADDLE_BACKUP_ENV_PATH", "/job/log/backup_env.2.json"},
                 {"FLAGS_selected_gpus", "0"},
                 {"PADDLE_DISTRI_BACKEND", "(unset)"},
                 {"http_proxy", "(unset)"}});
}

TEST(WorkerEnvironment, TorchrunsVariables) {
  Case job;
  job.request.job_id = "night";
  job.request.max_restart = 3;
  job.context.restart = 1;
  expect_values(job, 1,
                {{"RANK", "1"},
                 {"WORLD_SIZE", "3"},
                 {"LOCAL_RANK", "1"},
                 {"LOCAL_WORLD_SIZE", "2"},
                 {"GROUP_RANK", "0"},
                 {"GROUP_WORLD_SIZE", "2"},
                 {"ROLE_RANK", "1"},
                 {"ROLE_WORLD_SIZE", "3"},
                 {"ROLE_NAME", "default"},
                 {"MASTER_ADDR", "10.0.0.1"},
                 {"MASTER_PORT", "6170"},
                 {"TORCHELASTIC_RESTART_COUNT", "1"},
                 {"TORCHELASTIC_MAX_RESTARTS", "3"},
                 {"TORCHELASTIC_RUN_ID", "night"},
                 {"TORCHELASTIC_USE_AGENT_STORE", "False"},
                 {"TRIREME_JOB_ID", "night"}});
}

TEST(WorkerEnvironment, EveryVariableIsDocumentedAndSetOnce) {
  Case job;
  job.context.amx_broken = true;
  std::set<std::string> documented, seen;
  for (const env::Variable& variable : env::variables()) documented.insert(variable.name);
  for (const auto& [name, value] : job.worker(0).environment) {
    EXPECT_TRUE(documented.contains(name)) << name;
    EXPECT_TRUE(seen.insert(name).second) << name;
  }
}

TEST(WorkerEnvironment, ParallelEnvUnderstandsIt) {
  Case job;
  const WorkerPlan worker = job.worker(1);
  const ParallelEnv env =
      ParallelEnv::from_variables(ParallelEnv::Variables(worker.environment.begin(), worker.environment.end()));
  EXPECT_EQ(RankInfo(env), (RankInfo{1, 3}));
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_EQ(env.device_id, 1);
  EXPECT_EQ(env.device_type, "gpu");
  EXPECT_EQ(env.node_count, 2);
  EXPECT_EQ(env.master, (Endpoint{"10.0.0.1", 6170}));
}

// The example of spec 1: CUDA_VISIBLE_DEVICES=4,5,6,7 with --gpus 5,6.
TEST(WorkerEnvironment, VisibleDevicesAreTheChosenOnesAndSelectionIndexesThem) {
  Case job{.nodes = {node_with("10.0.0.1", 2, {"5", "6"})}, .context = {}, .request = {}};
  job.context.inherited = {{"CUDA_VISIBLE_DEVICES", "4,5,6,7"}};
  expect_values(job, 0, {{"CUDA_VISIBLE_DEVICES", "5,6"}, {"FLAGS_selected_gpus", "0"}, {"LOCAL_RANK", "0"}});
  expect_values(job, 1, {{"CUDA_VISIBLE_DEVICES", "5,6"}, {"FLAGS_selected_gpus", "1"}, {"LOCAL_RANK", "1"}});
}

TEST(WorkerEnvironment, OneProcessGetsAllDevices) {
  Case job{.nodes = {node_with("10.0.0.1", 1, {"4", "5", "6"})}, .context = {}, .request = {}};
  expect_values(job, 0, {{"CUDA_VISIBLE_DEVICES", "4,5,6"}, {"FLAGS_selected_gpus", "0,1,2"}});
}

TEST(WorkerEnvironment, MoreDevicesThanProcessesGoInBlocks) {
  Case job{.nodes = {node_with("10.0.0.1", 2, {"4", "5", "6", "7"})}, .context = {}, .request = {}};
  expect_values(job, 0, {{"FLAGS_selected_gpus", "0,1"}, {"LOCAL_RANK", "0"}});
  expect_values(job, 1, {{"FLAGS_selected_gpus", "2,3"}, {"LOCAL_RANK", "1"}});
}

TEST(WorkerEnvironment, MoreProcessesThanDevicesTakeTurns) {
  Case job{.nodes = {node_with("10.0.0.1", 3, {"4", "5"})}, .context = {}, .request = {}};
  expect_values(job, 1, {{"FLAGS_selected_gpus", "1"}, {"LOCAL_RANK", "1"}});
  expect_values(job, 2, {{"FLAGS_selected_gpus", "0"}, {"LOCAL_RANK", "2"}});
}

TEST(WorkerEnvironment, WithoutDevicesGlooAndVisibleDevicesUntouched) {
  Case job{.nodes = {node_with("10.0.0.1", 2)}, .context = {}, .request = {}};
  job.context.inherited = {{"CUDA_VISIBLE_DEVICES", ""}};
  expect_values(
      job, 0,
      {{"PADDLE_DISTRI_BACKEND", "gloo"}, {"FLAGS_selected_gpus", "(unset)"}, {"CUDA_VISIBLE_DEVICES", "(unset)"}});
}

TEST(WorkerEnvironment, ThreadsAreCoresDividedByProcesses) {
  Case job;
  EXPECT_EQ(job.value(0, "OMP_NUM_THREADS"), "4");
  EXPECT_EQ(job.value(2, "OMP_NUM_THREADS"), "8");
  job.nodes[0].cores = 1;
  EXPECT_EQ(job.value(0, "OMP_NUM_THREADS"), "1");
}

TEST(WorkerEnvironment, InheritedSettingsAreRespected) {
  Case job;
  job.context.amx_broken = true;
  job.context.inherited = {{"OMP_NUM_THREADS", "3"},
                           {"ONEDNN_MAX_CPU_ISA", "AVX2"},
                           {"GLOO_SOCKET_IFNAME", "ib0"},
                           {"NCCL_SOCKET_IFNAME", "ib1"}};
  for (const auto& [name, value] : job.context.inherited) EXPECT_EQ(job.value(0, name), "(unset)") << name;
}

TEST(WorkerEnvironment, AnEmptyInheritedSettingCountsAsUnset) {
  Case job;
  job.context.inherited = {{"OMP_NUM_THREADS", ""}};
  EXPECT_EQ(job.value(0, "OMP_NUM_THREADS"), "4");
}

TEST(WorkerEnvironment, PlannedVariablesBeatInheritedOnes) {
  Case job;
  job.context.inherited = {{"RANK", "9"}, {"PADDLE_MASTER", "old:1"}};
  expect_values(job, 0, {{"RANK", "0"}, {"PADDLE_MASTER", "10.0.0.1:6170"}});
}

TEST(WorkerEnvironment, InstructionGuardOnlyOnABrokenCpu) {
  Case job;
  EXPECT_EQ(job.value(0, "ONEDNN_MAX_CPU_ISA"), "(unset)");
  job.context.amx_broken = true;
  EXPECT_EQ(job.value(0, "ONEDNN_MAX_CPU_ISA"), "AVX512_CORE_FP16");
}

TEST(WorkerEnvironment, InterfacesOfTheNode) {
  Case job;
  expect_values(job, 0, {{"GLOO_SOCKET_IFNAME", "eth0"}, {"NCCL_SOCKET_IFNAME", "eth0"}});
  job.nodes[1].interface = "eth7";
  EXPECT_EQ(job.value(2, "GLOO_SOCKET_IFNAME"), "eth7");
  job.nodes[0].interface = "";
  EXPECT_EQ(job.value(0, "GLOO_SOCKET_IFNAME"), "(unset)");
}

TEST(WorkerEnvironment, NcclIsNotBoundToLoopbackOnOneNode) {
  Case job{.nodes = {node_with("127.0.0.1", 2, {"0", "1"})}, .context = {}, .request = {}};
  expect_values(job, 0, {{"GLOO_SOCKET_IFNAME", "lo"}, {"NCCL_SOCKET_IFNAME", "(unset)"}});
  job.nodes.push_back(node_with("127.0.0.1", 1, {"2"}));  // two launchers on one machine
  EXPECT_EQ(job.value(0, "NCCL_SOCKET_IFNAME"), "lo");
}

TEST(WorkerEnvironment, Ipv6HasBracketsInPaddlesValuesOnly) {
  Case job{.nodes = {node_with("fd00::1", 2)}, .context = {}, .request = {}};
  expect_values(job, 1,
                {{"PADDLE_MASTER", "[fd00::1]:6170"},
                 {"PADDLE_CURRENT_ENDPOINT", "[fd00::1]:17001"},
                 {"PADDLE_TRAINER_ENDPOINTS", "[fd00::1]:17000,[fd00::1]:17001"},
                 {"MASTER_ADDR", "fd00::1"}});
}

TEST(WorkerEnvironment, TheUsersVariablesComeLast) {
  Case job;
  job.request.environment = {{"OMP_NUM_THREADS", "2"}, {"MINE", "a=b"}, {"RANK", "7"}, {"MINE", "c"}};
  expect_values(job, 0, {{"OMP_NUM_THREADS", "2"}, {"MINE", "c"}, {"RANK", "7"}});
  const Environment environment = job.worker(0).environment;
  EXPECT_EQ(std::count_if(environment.begin(), environment.end(), [](auto& entry) { return entry.first == "MINE"; }),
            1);
}

TEST(WorkerEnvironment, MisleadingVariablesAreTakenOut) {
  Case job{.nodes = {node_with("10.0.0.1", 1)}, .context = {}, .request = {}};
  EXPECT_TRUE(job.worker(0).unset.empty());
  job.context.inherited = {{"FLAGS_selected_gpus", "3"}, {"TRIREME_SPAWN", "x"}, {"PATH", "/bin"}};
  EXPECT_EQ(job.worker(0).unset, (Words{"TRIREME_SPAWN", "FLAGS_selected_gpus"}));
  job.request.environment = {{"FLAGS_selected_gpus", "1"}};
  EXPECT_EQ(job.worker(0).unset, (Words{"TRIREME_SPAWN"}));
}

// Endpoints of exactly `size` characters.
WorkerPlan with_endpoints(size_t size) {
  WorkerPlan worker;
  worker.trainer_endpoints = std::make_shared<const std::string>(std::string(size, 'x'));
  const Request request;
  const std::vector<NodeInfo> nodes = {node_with("10.0.0.1", 1)};
  PlanContext context;
  context.inherited = {{"PADDLE_TRAINER_ENDPOINTS", "old"}};
  const JobFacts job{request, nodes, context, 1};
  worker.environment = worker_environment(job, worker);
  worker.unset = misleading_variables(job, worker);
  return worker;
}

TEST(WorkerEnvironment, LongEndpointsAreInTheBackupFileOnly) {
  const WorkerPlan fits = with_endpoints(kMaxEndpoints - 1);
  EXPECT_TRUE(value_of(fits.environment, "PADDLE_TRAINER_ENDPOINTS"));
  EXPECT_TRUE(fits.unset.empty());
  const WorkerPlan large = with_endpoints(kMaxEndpoints);
  EXPECT_FALSE(value_of(large.environment, "PADDLE_TRAINER_ENDPOINTS"));
  EXPECT_EQ(large.unset, (Words{"PADDLE_TRAINER_ENDPOINTS"}));
  const auto backup = nlohmann::json::parse(backup_env_json(large));
  EXPECT_EQ(backup.at("PADDLE_TRAINER_ENDPOINTS"), *large.trainer_endpoints);
}

TEST(WorkerEnvironment, BackupFileHoldsEveryVariable) {
  Case job;
  job.request.environment = {{"BYTES", "\xff"}};
  const WorkerPlan worker = job.worker(1);
  const auto backup = nlohmann::json::parse(backup_env_json(worker));
  EXPECT_EQ(backup.size(), worker.environment.size());
  EXPECT_EQ(backup.at("PADDLE_TRAINER_ID"), "1");
}

TEST(PodName, SixLettersThatDependOnJobAndNode) {
  const std::string name = pod_name("default", 0);
  EXPECT_EQ(name.size(), 6u);
  EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz"), std::string::npos) << name;
  EXPECT_EQ(name, pod_name("default", 0));
  EXPECT_NE(name, pod_name("default", 1));
  EXPECT_NE(name, pod_name("other", 0));
  Case job;
  EXPECT_EQ(job.value(0, "POD_NAME"), name);
  EXPECT_EQ(job.value(2, "POD_NAME"), pod_name("default", 1));
}

TEST(UsersSetting, TheCommandLineWins) {
  const Request request{.environment = {{"A", "1"}, {"A", ""}, {"B", "2"}}};
  const Environment inherited{{"A", "3"}, {"C", "4"}};
  EXPECT_EQ(users_setting(request, inherited, "A"), "");
  EXPECT_EQ(users_setting(request, inherited, "B"), "2");
  EXPECT_EQ(users_setting(request, inherited, "C"), "4");
  EXPECT_EQ(users_setting(request, inherited, "D"), std::nullopt);
}

TEST(ValueOf, TheLastEntryCounts) {
  EXPECT_EQ(value_of({{"A", "1"}, {"A", "2"}}, "A"), "2");
  EXPECT_FALSE(value_of({{"A", "1"}}, "B"));
}

}  // namespace
}  // namespace trireme::launch
