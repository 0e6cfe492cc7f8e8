#include "trireme/core/parallel_env.h"

#include <gtest/gtest.h>

#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"

namespace trireme {
namespace {

using Variables = ParallelEnv::Variables;

const Variables kPaddle = {{"PADDLE_TRAINER_ID", "2"},
                           {"PADDLE_TRAINERS_NUM", "3"},
                           {"PADDLE_CURRENT_ENDPOINT", "10.0.0.2:17000"},
                           {"PADDLE_TRAINER_ENDPOINTS", "10.0.0.1:17000,10.0.0.1:17001,10.0.0.2:17000"}};
const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"GROUP_RANK", "1"},
                             {"GROUP_WORLD_SIZE", "2"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_PORT", "29500"},
                             {"MASTER_ADDR", "10.0.0.1"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Variables kHydra = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kSlurm = {
    {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "4"},         {"SLURM_STEP_NUM_TASKS", "5"},
    {"SLURM_NTASKS", "5"},  {"SLURM_LOCALID", "0"},        {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
    {"SLURM_NODEID", "2"},  {"SLURM_STEP_NUM_NODES", "3"}, {"SLURM_NNODES", "7"}};

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

void expect_usage_error(const Variables& variables, const std::vector<std::string>& words) {
  try {
    ParallelEnv::from_variables(variables);
    FAIL() << "no error; expected one that says " << words.front();
  } catch (const UsageError& error) {
    for (const std::string& word : words)
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

TEST(ParallelEnv, AloneIsAWorldOfOne) {
  const ParallelEnv env = ParallelEnv::from_variables({});
  EXPECT_FALSE(env.launched);
  EXPECT_EQ(env.rank, 0);
  EXPECT_EQ(env.world_size, 1);
  EXPECT_EQ(env.nranks(), 1);
  EXPECT_EQ(env.device_type, "auto");
  EXPECT_EQ(env.device_id, 0);
  EXPECT_FALSE(env.master);
  EXPECT_EQ(env.nrings, 1);
  EXPECT_EQ(env.pg_timeout, std::chrono::minutes(30));
}

TEST(ParallelEnv, LauncherOptionsAndEmptyValuesDoNotMakeAWorld) {
  EXPECT_FALSE(ParallelEnv::from_variables({{"PADDLE_NNODES", "2:4"}, {"MASTER_ADDR", "10.0.0.1"}}).launched);
  EXPECT_FALSE(ParallelEnv::from_variables({{"RANK", ""}, {"PADDLE_TRAINER_ID", ""}}).launched);
}

TEST(ParallelEnv, PaddlesNames) {
  const ParallelEnv env = ParallelEnv::from_variables(with(kPaddle, {{"FLAGS_selected_gpus", "1,3"}}));
  EXPECT_TRUE(env.launched);
  EXPECT_EQ(RankInfo(env), (RankInfo{2, 3}));
  EXPECT_EQ(env.current_endpoint, "10.0.0.2:17000");
  EXPECT_EQ(env.trainer_endpoints.size(), 3u);
  EXPECT_EQ(env.device_type, "gpu");
  EXPECT_EQ(env.device_id, 1);
}

TEST(ParallelEnv, PlaceComesFromTheEndpointsWhenNothingElseTellsIt) {
  const ParallelEnv env = ParallelEnv::from_variables(kPaddle);
  EXPECT_EQ(env.local_rank, 0);
  EXPECT_EQ(env.local_world_size, 1);
  EXPECT_EQ(env.node_rank, 1);
  EXPECT_EQ(env.node_count, 2);
  const ParallelEnv second = ParallelEnv::from_variables(
      with(kPaddle, {{"PADDLE_TRAINER_ID", "1"}, {"PADDLE_CURRENT_ENDPOINT", "10.0.0.1:17001"}}));
  EXPECT_EQ(second.local_rank, 1);
  EXPECT_EQ(second.local_world_size, 2);
  EXPECT_EQ(second.node_rank, 0);
}

TEST(ParallelEnv, TorchrunsNames) {
  const ParallelEnv env = ParallelEnv::from_variables(with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "2"}}));
  EXPECT_EQ(RankInfo(env), (RankInfo{3, 4}));
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_EQ(env.local_world_size, 2);
  EXPECT_EQ(env.node_rank, 1);
  EXPECT_EQ(env.node_count, 2);
  EXPECT_EQ(env.restart_count, 2);
  EXPECT_EQ(env.master, (Endpoint{"10.0.0.1", 29500}));
  EXPECT_EQ(env.device_type, "auto");
  EXPECT_EQ(env.device_id, 1);
  EXPECT_TRUE(env.trainer_endpoints.empty());
}

TEST(ParallelEnv, OpenMpisNames) {
  const ParallelEnv env = ParallelEnv::from_variables(kOpenMpi);
  EXPECT_TRUE(env.launched);
  EXPECT_EQ(env.launcher, "mpi");
  EXPECT_EQ(RankInfo(env), (RankInfo{3, 4}));
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_EQ(env.local_world_size, 2);
  EXPECT_EQ(env.node_rank, 1);
  EXPECT_EQ(env.node_count, 2);
  EXPECT_EQ(env.device_id, 1);
  EXPECT_FALSE(env.master) << "mpirun tells none, and MPI needs none";
  const Variables named = with(kOpenMpi, {{"MASTER_ADDR", "h"}, {"MASTER_PORT", "7000"}});
  EXPECT_EQ(ParallelEnv::from_variables(named).master, (Endpoint{"h", 7000}));
}

TEST(ParallelEnv, MpiRanksThatAlternateBetweenNodes) {
  const ParallelEnv env = ParallelEnv::from_variables(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "2"}}));
  EXPECT_EQ(env.node_rank, 0);
  EXPECT_EQ(env.local_rank, 1);
}

TEST(ParallelEnv, NamesOfMpichAndIntel) {
  const ParallelEnv env = ParallelEnv::from_variables(kHydra);
  EXPECT_EQ(env.launcher, "mpi");
  EXPECT_EQ(RankInfo(env), (RankInfo{1, 2}));
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_EQ(env.local_world_size, 2);
  EXPECT_EQ(env.node_count, 1);
}

TEST(ParallelEnv, SlurmsNames) {
  const ParallelEnv env = ParallelEnv::from_variables(kSlurm);
  EXPECT_TRUE(env.launched);
  EXPECT_EQ(env.launcher, "slurm");
  EXPECT_EQ(RankInfo(env), (RankInfo{4, 5}));
  EXPECT_EQ(env.local_rank, 0);
  EXPECT_EQ(env.local_world_size, 1);
  EXPECT_EQ(env.node_rank, 2);
  EXPECT_EQ(env.node_count, 3) << "of the step, not of the allocation";
  EXPECT_FALSE(env.master);
}

TEST(ParallelEnv, SlurmsTasksPerNode) {
  const Variables second = with(kSlurm, {{"SLURM_PROCID", "3"}, {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "1"}});
  EXPECT_EQ(ParallelEnv::from_variables(second).local_world_size, 2);
  for (const char* unknown : {"", "many", "2(x", "2(x)", "2(x1)"})
    EXPECT_EQ(ParallelEnv::from_variables(with(second, {{"SLURM_STEP_TASKS_PER_NODE", unknown}})).local_world_size, 2)
        << "evenly, when the text does not tell: " << unknown;
}

// Both have SLURM_PROCID=0 and the number of tasks that the job may start.
TEST(ParallelEnv, ABatchScriptAndAnInteractiveShellAreNobodysRank) {
  const Variables batch = {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}, {"SLURM_NNODES", "2"}};
  EXPECT_FALSE(ParallelEnv::from_variables(batch).launched);
  EXPECT_FALSE(ParallelEnv::from_variables(with(batch, {{"SLURM_STEP_ID", "4294967290"}})).launched);
  EXPECT_TRUE(ParallelEnv::from_variables(with(batch, {{"SLURM_STEP_ID", "3"}})).launched);
}

TEST(ParallelEnv, SrunThatSpeaksPmiIsStillSrun) {
  const Variables both = with(kSlurm, {{"PMI_RANK", "4"}, {"PMI_SIZE", "5"}});
  EXPECT_EQ(ParallelEnv::from_variables(both).launcher, "slurm");
  EXPECT_EQ(ParallelEnv::from_variables(both).local_world_size, 1);
}

TEST(ParallelEnv, TheNearestLauncherWins) {
  EXPECT_EQ(ParallelEnv::from_variables({}).launcher, "");
  EXPECT_EQ(ParallelEnv::from_variables(kPaddle).launcher, "paddle");
  EXPECT_EQ(ParallelEnv::from_variables(kTorchrun).launcher, "torchrun");
  EXPECT_EQ(ParallelEnv::from_variables(
                with(with(kTorchrun, kPaddle), {{"RANK", "2"}, {"WORLD_SIZE", "3"}, {"LOCAL_WORLD_SIZE", "2"}}))
                .launcher,
            "torchrun");
  EXPECT_EQ(ParallelEnv::from_variables(with(kTorchrun, {{"TRIREME_JOB_ID", "night"}})).launcher, "trireme");
  const ParallelEnv inside = ParallelEnv::from_variables(with(with(kSlurm, kOpenMpi), {{"SLURM_PROCID", "1"}}));
  EXPECT_EQ(inside.launcher, "mpi") << "mpirun inside a Slurm job: its daemons are srun's tasks";
  EXPECT_EQ(inside.rank, 3);
  const ParallelEnv job = ParallelEnv::from_variables(with(with(kSlurm, kOpenMpi), kTorchrun));
  EXPECT_EQ(job.launcher, "torchrun");
  EXPECT_EQ(job.node_count, 2);
}

TEST(ParallelEnv, ForeignNonsenseIsShown) {
  expect_usage_error(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "4"}}),
                     {"OMPI_COMM_WORLD_RANK=4", "OMPI_COMM_WORLD_SIZE=4"});
  expect_usage_error(with(kSlurm, {{"SLURM_PROCID", "x"}}), {"SLURM_PROCID=\"x\""});
  expect_usage_error(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "2"}}), {"mpirun", "rank 2 of 2 on node"});
  expect_usage_error(with(kOpenMpi, {{"MPI_LOCALRANKID", "0"}}), {"OMPI_COMM_WORLD_LOCAL_RANK=1", "MPI_LOCALRANKID=0"});
}

TEST(ParallelEnv, BothFamiliesTogether) {
  const Variables same = {{"RANK", "2"}, {"WORLD_SIZE", "3"}, {"LOCAL_RANK", "0"}, {"PADDLE_RANK_IN_NODE", "0"}};
  EXPECT_EQ(RankInfo(ParallelEnv::from_variables(with(kPaddle, same))), (RankInfo{2, 3}));
}

TEST(ParallelEnv, MasterInPaddlesOrder) {
  EXPECT_EQ(ParallelEnv::from_variables(kPaddle).master, (Endpoint{"10.0.0.1", 17000}));
  const Variables named = with(kPaddle, {{"PADDLE_MASTER", "[fd00::1]:6000"}});
  EXPECT_EQ(ParallelEnv::from_variables(named).master, (Endpoint{"fd00::1", 6000}));
  const Variables both = with(named, {{"MASTER_ADDR", "h"}, {"MASTER_PORT", "7000"}});
  EXPECT_EQ(ParallelEnv::from_variables(both).master, (Endpoint{"h", 7000}));
  const Variables half = with(named, {{"MASTER_ADDR", "h"}});
  EXPECT_EQ(ParallelEnv::from_variables(half).master, (Endpoint{"fd00::1", 6000}));
}

TEST(ParallelEnv, CpuWhenTheLauncherSaysGloo) {
  const ParallelEnv env = ParallelEnv::from_variables(with(kPaddle, {{"PADDLE_DISTRI_BACKEND", "gloo"}}));
  EXPECT_EQ(env.device_type, "cpu");
  EXPECT_EQ(env.device_id, 0);
}

TEST(ParallelEnv, HalfSetNamesTheMissingVariable) {
  for (const char* name : {"PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_CURRENT_ENDPOINT"})
    expect_usage_error(without(kPaddle, name), {std::string(name) + " is not set"});
  for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    expect_usage_error(without(kTorchrun, name), {std::string(name) + " is not set"});
  expect_usage_error({{"LOCAL_RANK", "0"}}, {"RANK is not set"});
}

TEST(ParallelEnv, AWorldOfOneNeedsNoMaster) {
  EXPECT_FALSE(ParallelEnv::from_variables({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).master);
}

TEST(ParallelEnv, ContradictionsNameBothVariables) {
  expect_usage_error(with(kPaddle, {{"RANK", "1"}}), {"PADDLE_TRAINER_ID=2", "RANK=1"});
  expect_usage_error(with(kPaddle, {{"WORLD_SIZE", "4"}}), {"PADDLE_TRAINERS_NUM=3", "WORLD_SIZE=4"});
  expect_usage_error(with(kTorchrun, {{"PADDLE_LOCAL_RANK", "0"}}), {"LOCAL_RANK=1", "PADDLE_LOCAL_RANK=0"});
  expect_usage_error(with(kPaddle, {{"PADDLE_CURRENT_ENDPOINT", "10.0.0.9:1"}}), {"10.0.0.9:1", "10.0.0.2:17000"});
  expect_usage_error(with(kPaddle, {{"PADDLE_TRAINER_ENDPOINTS", "a:1,b:2"}}),
                     {"PADDLE_TRAINER_ENDPOINTS has 2", "is 3"});
}

TEST(ParallelEnv, OutOfRangeNamesBothVariables) {
  expect_usage_error(with(kTorchrun, {{"RANK", "4"}}), {"RANK=4", "WORLD_SIZE=4"});
  expect_usage_error(with(kPaddle, {{"PADDLE_TRAINER_ID", "3"}}), {"PADDLE_TRAINER_ID=3", "PADDLE_TRAINERS_NUM=3"});
  expect_usage_error(with(kTorchrun, {{"LOCAL_RANK", "2"}}), {"LOCAL_RANK=2", "LOCAL_WORLD_SIZE=2"});
  expect_usage_error(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "5"}}), {"LOCAL_WORLD_SIZE=5", "WORLD_SIZE=4"});
  expect_usage_error(with(kTorchrun, {{"GROUP_RANK", "2"}}), {"GROUP_RANK=2", "GROUP_WORLD_SIZE=2"});
}

TEST(ParallelEnv, NonsenseIsAnErrorThatShowsIt) {
  expect_usage_error(with(kTorchrun, {{"RANK", "two"}}), {"RANK=\"two\""});
  expect_usage_error(with(kTorchrun, {{"RANK", "-1"}}), {"RANK=\"-1\""});
  expect_usage_error(with(kTorchrun, {{"WORLD_SIZE", "0"}}), {"WORLD_SIZE=\"0\""});
  expect_usage_error(with(kTorchrun, {{"MASTER_PORT", "70000"}}), {"MASTER_PORT", "70000"});
  expect_usage_error({{"FLAGS_selected_gpus", "GPU-1234"}}, {"FLAGS_selected_gpus"});
}

TEST(ParallelEnv, Settings) {
  const ParallelEnv env = ParallelEnv::from_variables({{"FLAGS_nccl_nrings", "8"}, {"PADDLE_PG_TIMEOUT", "5000"}});
  EXPECT_EQ(env.nrings, 8);
  EXPECT_EQ(env.pg_timeout, std::chrono::seconds(5));
  expect_usage_error({{"FLAGS_nccl_nrings", "9"}}, {"FLAGS_nccl_nrings", "1 to 8"});
  expect_usage_error({{"PADDLE_PG_TIMEOUT", "0"}}, {"PADDLE_PG_TIMEOUT"});
}

// Gives this process exactly the given variables of the table, and the old ones back at the end.
class ProcessEnvironment {
 public:
  explicit ProcessEnvironment(const Variables& variables) {
    for (const env::Variable& variable : env::variables()) {
      if (variable.use == env::Use::launcher && !std::string_view(variable.name).starts_with("PADDLE_")) continue;
      old_.emplace_back(variable.name, env::get(variable.name));
      env::set(variable.name, std::nullopt);
    }
    for (const auto& [name, value] : variables) env::set(name, value);
  }
  ~ProcessEnvironment() {
    for (const auto& [name, value] : old_) env::set(name, value);
  }

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> old_;
};

TEST(ParallelEnv, FromTheEnvironmentOfTheProcess) {
  const ProcessEnvironment environment(kTorchrun);
  EXPECT_EQ(ParallelEnv::from_environment().local_rank, 1);
  EXPECT_EQ(get_rank(), 3);
  EXPECT_EQ(get_world_size(), 4);
}

TEST(ParallelEnv, RankAloneUnderstandsMpirunAndSrun) {
  {
    const ProcessEnvironment environment(kOpenMpi);
    EXPECT_EQ(get_rank(), 3);
    EXPECT_EQ(get_world_size(), 4);
    EXPECT_EQ(ParallelEnv::from_environment().launcher, "mpi");
  }
  const ProcessEnvironment environment(kSlurm);
  EXPECT_EQ(get_rank(), 4);
  EXPECT_EQ(get_world_size(), 5);
  EXPECT_EQ(ParallelEnv::from_environment().local_world_size, 1);
}

TEST(ParallelEnv, AloneByTheEnvironmentOfTheProcess) {
  const ProcessEnvironment environment({});
  EXPECT_FALSE(ParallelEnv::from_environment().launched);
  EXPECT_EQ(get_rank(), 0);
  EXPECT_EQ(get_world_size(), 1);
}

TEST(ParallelEnv, LongEndpointsComeFromTheBackupFile) {
  const TempDir folder;
  write_file_atomically(folder.path() / "backup_env.2.json",
                        R"({"PADDLE_TRAINER_ENDPOINTS": "10.0.0.1:1,10.0.0.1:2,10.0.0.2:17000"})");
  Variables variables = without(kPaddle, "PADDLE_TRAINER_ENDPOINTS");
  variables["PADDLE_BACKUP_ENV_PATH"] = folder.path() / "backup_env.2.json";
  variables["PADDLE_MASTER"] = "10.0.0.1:6000";
  const ProcessEnvironment environment(variables);
  EXPECT_EQ(ParallelEnv::from_environment().trainer_endpoints.size(), 3u);
}

TEST(ParallelEnv, ABrokenBackupFileIsLeftAlone) {
  const TempDir folder;
  write_file_atomically(folder.path() / "backup_env.2.json", "{");
  Variables variables = without(kPaddle, "PADDLE_TRAINER_ENDPOINTS");
  variables["PADDLE_BACKUP_ENV_PATH"] = folder.path() / "backup_env.2.json";
  variables["PADDLE_MASTER"] = "10.0.0.1:6000";
  const ProcessEnvironment environment(variables);
  EXPECT_TRUE(ParallelEnv::from_environment().trainer_endpoints.empty());
}

}  // namespace
}  // namespace trireme
