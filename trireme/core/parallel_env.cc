#include "trireme/core/parallel_env.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>

#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/net.h"
#include "trireme/core/text.h"

namespace trireme {
namespace {

using Variables = ParallelEnv::Variables;
using Names = std::initializer_list<const char*>;

constexpr int kMaxRanks = 1 << 24;
constexpr int64_t kMaxTimeout = int64_t{1} << 40;  // milliseconds; some 35 years

std::string value(const Variables& variables, const char* name) {
  const auto found = variables.find(name);
  return found == variables.end() ? "" : found->second;
}

bool has(const Variables& variables, const char* name) {
  return !value(variables, name).empty();
}

bool has_any(const Variables& variables, Names names) {
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return has(variables, name); });
}

int64_t number(const Variables& variables, const char* name, int64_t low, int64_t high) {
  const std::string text = value(variables, name);
  const auto found = parse_int(text, low, high);
  if (!found) throw UsageError("{}=\"{}\" must be a number from {} to {}", name, printable(text), low, high);
  return *found;
}

// The number under whichever of the names is set; two different ones are an error.
std::optional<int> agreed(const Variables& variables, Names names, int low) {
  std::optional<int> result;
  const char* told_by = "";
  for (const char* name : names) {
    if (!has(variables, name)) continue;
    const int found = static_cast<int>(number(variables, name, low, kMaxRanks));
    if (result && *result != found)
      throw UsageError("{}={} and {}={} contradict each other; unset one of them", told_by, *result, name, found);
    if (!result) told_by = name;
    result = found;
  }
  return result;
}

[[noreturn]] void throw_missing(const char* name) {
  throw UsageError(
      "the environment of this worker is incomplete: {} is not set; start the program with trireme launch, or unset "
      "the other PADDLE_* and torchrun variables to run it alone",
      name);
}

bool speaks_paddle(const Variables& variables) {
  return has_any(variables, {"PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_CURRENT_ENDPOINT"});
}

bool speaks_torchrun(const Variables& variables) {
  return has_any(variables, {"RANK", "WORLD_SIZE", "LOCAL_RANK"});
}

void read_rank(ParallelEnv& env, const Variables& variables) {
  const bool torchrun = speaks_torchrun(variables);
  const auto rank = agreed(variables, {"PADDLE_TRAINER_ID", "RANK"}, 0);
  const auto size = agreed(variables, {"PADDLE_TRAINERS_NUM", "WORLD_SIZE"}, 1);
  if (!rank) throw_missing(torchrun ? "RANK" : "PADDLE_TRAINER_ID");
  if (!size) throw_missing(torchrun ? "WORLD_SIZE" : "PADDLE_TRAINERS_NUM");
  if (!torchrun && !has(variables, "PADDLE_CURRENT_ENDPOINT")) throw_missing("PADDLE_CURRENT_ENDPOINT");
  const bool by_torchrun = has(variables, "RANK");
  if (*rank >= *size)
    throw UsageError("{}={} must be smaller than {}={}", by_torchrun ? "RANK" : "PADDLE_TRAINER_ID", *rank,
                     has(variables, "WORLD_SIZE") ? "WORLD_SIZE" : "PADDLE_TRAINERS_NUM", *size);
  env.rank = *rank;
  env.world_size = *size;
}

void read_endpoints(ParallelEnv& env, const Variables& variables) {
  env.current_endpoint = value(variables, "PADDLE_CURRENT_ENDPOINT");
  env.trainer_endpoints = split(value(variables, "PADDLE_TRAINER_ENDPOINTS"), ',');
  if (env.trainer_endpoints.empty()) return;
  if (env.trainer_endpoints.size() != static_cast<size_t>(env.world_size))
    throw UsageError("PADDLE_TRAINER_ENDPOINTS has {} entries, but PADDLE_TRAINERS_NUM or WORLD_SIZE is {}",
                     env.trainer_endpoints.size(), env.world_size);
  const std::string& own = env.trainer_endpoints[static_cast<size_t>(env.rank)];
  if (!env.current_endpoint.empty() && own != env.current_endpoint)
    throw UsageError("PADDLE_CURRENT_ENDPOINT={} is not entry {} of PADDLE_TRAINER_ENDPOINTS, which is {}",
                     env.current_endpoint, env.rank, own);
}

std::string host_of(const std::string& endpoint) {
  return endpoint.substr(0, endpoint.rfind(':'));
}

// Where this worker stands among the hosts; what Paddle's spawn and old launchers do not tell, the endpoints do.
void place_by_endpoints(ParallelEnv& env) {
  const size_t rank = static_cast<size_t>(env.rank);
  if (rank >= env.trainer_endpoints.size()) return;
  const std::string own = host_of(env.trainer_endpoints[rank]);
  std::vector<std::string> hosts;
  env.local_world_size = 0;
  for (size_t i = 0; i < env.trainer_endpoints.size(); ++i) {
    const std::string host = host_of(env.trainer_endpoints[i]);
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
    if (host != own) continue;
    if (i < rank) ++env.local_rank;
    ++env.local_world_size;
  }
  env.node_count = static_cast<int>(hosts.size());
  env.node_rank = static_cast<int>(std::find(hosts.begin(), hosts.end(), own) - hosts.begin());
}

void read_place(ParallelEnv& env, const Variables& variables) {
  place_by_endpoints(env);
  const auto local = agreed(variables, {"LOCAL_RANK", "PADDLE_LOCAL_RANK", "PADDLE_RANK_IN_NODE"}, 0);
  const auto local_size = agreed(variables, {"LOCAL_WORLD_SIZE", "PADDLE_LOCAL_SIZE"}, 1);
  env.local_rank = local.value_or(env.local_rank);
  env.local_world_size = local_size.value_or(std::max(env.local_world_size, env.local_rank + 1));
  env.node_rank = agreed(variables, {"GROUP_RANK"}, 0).value_or(env.node_rank);
  // PADDLE_NNODES may also be a launcher's option ("2:4") that leaked in: GROUP_WORLD_SIZE comes first.
  const auto paddle_nodes = parse_int(value(variables, "PADDLE_NNODES"), 1, kMaxRanks);
  const int fallback = paddle_nodes ? static_cast<int>(*paddle_nodes) : env.node_count;
  env.node_count = agreed(variables, {"GROUP_WORLD_SIZE"}, 1).value_or(fallback);
}

void check_place(const ParallelEnv& env) {
  if (env.local_rank >= env.local_world_size)
    throw UsageError("LOCAL_RANK={} must be smaller than LOCAL_WORLD_SIZE={}", env.local_rank, env.local_world_size);
  if (env.local_world_size > env.world_size)
    throw UsageError("LOCAL_WORLD_SIZE={} must not be larger than WORLD_SIZE={}", env.local_world_size, env.world_size);
  if (env.node_rank >= env.node_count)
    throw UsageError("GROUP_RANK={} must be smaller than GROUP_WORLD_SIZE={}", env.node_rank, env.node_count);
}

// mpirun and srun name no master: a program that needs one sets MASTER_ADDR and MASTER_PORT.
bool may_lack_master(const ParallelEnv& env) {
  return env.world_size == 1 || env.launcher == "mpi" || env.launcher == "slurm";
}

// Paddle's order: MASTER_ADDR with MASTER_PORT, else PADDLE_MASTER, else trainer 0's endpoint.
std::optional<Endpoint> read_master(const ParallelEnv& env, const Variables& variables) {
  if (has(variables, "MASTER_ADDR") && has(variables, "MASTER_PORT"))
    return Endpoint{value(variables, "MASTER_ADDR"), static_cast<uint16_t>(number(variables, "MASTER_PORT", 1, 65535))};
  if (has(variables, "PADDLE_MASTER")) return parse_endpoint(value(variables, "PADDLE_MASTER"), "PADDLE_MASTER");
  if (!env.trainer_endpoints.empty()) return parse_endpoint(env.trainer_endpoints[0], "PADDLE_TRAINER_ENDPOINTS");
  if (may_lack_master(env)) return std::nullopt;
  throw_missing(has(variables, "MASTER_ADDR") ? "MASTER_PORT" : "MASTER_ADDR");
}

void read_device(ParallelEnv& env, const Variables& variables) {
  env.device_id = env.local_rank;
  if (has(variables, "FLAGS_selected_gpus")) {
    const std::string first = split(value(variables, "FLAGS_selected_gpus"), ',').front();
    env.device_type = "gpu";
    env.device_id = static_cast<int>(number({{"FLAGS_selected_gpus", first}}, "FLAGS_selected_gpus", 0, 4095));
  } else if (value(variables, "PADDLE_DISTRI_BACKEND") == "gloo") {
    env.device_type = "cpu";
    env.device_id = 0;
  }
}

void read_settings(ParallelEnv& env, const Variables& variables) {
  if (has(variables, "FLAGS_nccl_nrings")) env.nrings = static_cast<int>(number(variables, "FLAGS_nccl_nrings", 1, 8));
  if (has(variables, "PADDLE_PG_TIMEOUT"))
    env.pg_timeout = std::chrono::milliseconds(number(variables, "PADDLE_PG_TIMEOUT", 1, kMaxTimeout));
}

// --- mpirun and srun

// The names under which a launcher tells a rank and the size of the world.
struct RankNames {
  const char* rank;
  const char* size;
};
constexpr RankNames kOpenMpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"};
constexpr RankNames kPmi = {"PMI_RANK", "PMI_SIZE"};

bool has_both(const Variables& variables, const RankNames& names) {
  return has(variables, names.rank) && has(variables, names.size);
}

// The batch script itself has SLURM_PROCID and the number of tasks too, but is not a rank. Neither are the steps
// that Slurm makes for it and for interactive shells; their numbers are the last of 32 bits.
bool is_slurm_task(const Variables& variables) {
  constexpr int64_t kFirstSpecialStep = 0xfffffff0;
  const auto step = parse_int(value(variables, "SLURM_STEP_ID"), 0, kFirstSpecialStep - 1);
  return step && has(variables, "SLURM_PROCID") && has_any(variables, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
}

// srun may set PMI's names as well, for programs that are not MPI's; the process managers of MPICH and Intel also tell
// the place on the node.
bool is_mpi_rank(const Variables& variables) {
  if (has_both(variables, kOpenMpi)) return true;
  return has_both(variables, kPmi) && (has(variables, "MPI_LOCALRANKID") || !is_slurm_task(variables));
}

void read_rank(ParallelEnv& env, const Variables& variables, const RankNames& names) {
  env.rank = static_cast<int>(number(variables, names.rank, 0, kMaxRanks));
  env.world_size = static_cast<int>(number(variables, names.size, 1, kMaxRanks));
  if (env.rank >= env.world_size)
    throw UsageError("{}={} must be smaller than {}={}", names.rank, env.rank, names.size, env.world_size);
}

void read_mpi_rank(ParallelEnv& env, const Variables& variables) {
  read_rank(env, variables, has_both(variables, kOpenMpi) ? kOpenMpi : kPmi);
}

// Which node is this? Equally many ranks on all nodes, numbered node by node or in turns.
void guess_node(ParallelEnv& env) {
  env.node_count = (env.world_size + env.local_world_size - 1) / env.local_world_size;
  const bool node_by_node = env.rank % env.local_world_size == env.local_rank;
  env.node_rank = node_by_node ? env.rank / env.local_world_size : env.rank % env.node_count;
}

void read_mpi(ParallelEnv& env, const Variables& variables) {
  read_mpi_rank(env, variables);
  env.local_rank = agreed(variables, {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"}, 0).value_or(0);
  const auto size = agreed(variables, {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}, 1);
  env.local_world_size = size.value_or(env.local_rank + 1);
  guess_node(env);
}

void read_slurm_rank(ParallelEnv& env, const Variables& variables) {
  const bool of_step = has(variables, "SLURM_STEP_NUM_TASKS");
  read_rank(env, variables, {"SLURM_PROCID", of_step ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS"});
}

// "2(x3),1" is 2 tasks on each of three nodes, then 1. Nothing when the text is another or too short.
std::optional<int> tasks_of_node(const std::string& text, int node) {
  for (const std::string& entry : split(text, ',')) {
    const size_t bracket = entry.find("(x");
    const auto tasks = parse_int(entry.substr(0, bracket), 1, kMaxRanks);
    std::optional<int64_t> nodes = 1;
    if (bracket != std::string::npos && entry.ends_with(')'))
      nodes = parse_int(std::string_view(entry).substr(bracket + 2, entry.size() - bracket - 3), 1, kMaxRanks);
    if (!tasks || !nodes) return std::nullopt;
    if (node < *nodes) return static_cast<int>(*tasks);
    node -= static_cast<int>(*nodes);
  }
  return std::nullopt;
}

void read_slurm(ParallelEnv& env, const Variables& variables) {
  read_slurm_rank(env, variables);
  env.local_rank = agreed(variables, {"SLURM_LOCALID"}, 0).value_or(0);
  env.node_rank = agreed(variables, {"SLURM_NODEID"}, 0).value_or(0);
  const bool of_step = has(variables, "SLURM_STEP_NUM_NODES");
  env.node_count =
      agreed(variables, {of_step ? "SLURM_STEP_NUM_NODES" : "SLURM_NNODES"}, 1).value_or(env.node_rank + 1);
  const int evenly = (env.world_size + env.node_count - 1) / env.node_count;
  const auto told = tasks_of_node(value(variables, "SLURM_STEP_TASKS_PER_NODE"), env.node_rank);
  env.local_world_size = told.value_or(std::max(env.local_rank + 1, evenly));
}

void check_foreign_place(const ParallelEnv& env) {
  if (env.local_rank >= env.local_world_size || env.local_world_size > env.world_size ||
      env.node_rank >= env.node_count)
    throw UsageError(
        "the variables of {} contradict each other: rank {} of {} would be rank {} of {} on node {} of {}; was a "
        "launcher started inside another's job with half of its variables?",
        env.launcher == "mpi" ? "mpirun" : "srun", env.rank, env.world_size, env.local_rank, env.local_world_size,
        env.node_rank, env.node_count);
}

// The launcher whose variables count; "" when there are none.
const char* launcher_of(const Variables& variables) {
  const bool torchrun = speaks_torchrun(variables);
  if (torchrun || speaks_paddle(variables))
    return has(variables, "TRIREME_JOB_ID") ? "trireme" : torchrun ? "torchrun" : "paddle";
  if (is_mpi_rank(variables)) return "mpi";
  return is_slurm_task(variables) ? "slurm" : "";
}

void read_own_place(ParallelEnv& env, const Variables& variables) {
  read_rank(env, variables);
  read_endpoints(env, variables);
  read_place(env, variables);
  check_place(env);
}

void read_launched(ParallelEnv& env, const Variables& variables) {
  env.launched = true;
  if (env.launcher == "mpi")
    read_mpi(env, variables);
  else if (env.launcher == "slurm")
    read_slurm(env, variables);
  else
    read_own_place(env, variables);
  check_foreign_place(env);
  env.master = read_master(env, variables);
  env.restart_count = agreed(variables, {"TORCHELASTIC_RESTART_COUNT"}, 0).value_or(0);
}

Variables read_variables() {
  Variables variables;
  for (const env::Variable& known : env::variables())
    if (auto found = env::get_nonempty(known.name)) variables.emplace(known.name, *std::move(found));
  return variables;
}

// A list of endpoints that is too long for an environment lies in a file beside the logs.
void add_backup(Variables& variables) {
  if (has(variables, "PADDLE_TRAINER_ENDPOINTS") || !has(variables, "PADDLE_BACKUP_ENV_PATH")) return;
  const auto text = read_file(value(variables, "PADDLE_BACKUP_ENV_PATH"));
  const auto object = nlohmann::json::parse(text.value_or(""), nullptr, false);
  if (!object.is_object()) return;
  const auto endpoints = object.find("PADDLE_TRAINER_ENDPOINTS");
  if (endpoints != object.end() && endpoints->is_string()) variables["PADDLE_TRAINER_ENDPOINTS"] = *endpoints;
}

// Programs ask for their rank again and again: no file is read for it.
RankInfo rank_alone() {
  ParallelEnv env;
  const Variables variables = read_variables();
  const std::string launcher = launcher_of(variables);
  if (launcher == "mpi")
    read_mpi_rank(env, variables);
  else if (launcher == "slurm")
    read_slurm_rank(env, variables);
  else if (!launcher.empty())
    read_rank(env, variables);
  return env;
}

}  // namespace

ParallelEnv ParallelEnv::from_variables(const Variables& variables) {
  ParallelEnv env;
  env.launcher = launcher_of(variables);
  if (!env.launcher.empty()) read_launched(env, variables);
  read_device(env, variables);
  read_settings(env, variables);
  return env;
}

ParallelEnv ParallelEnv::from_environment() {
  Variables variables = read_variables();
  add_backup(variables);
  return from_variables(variables);
}

int get_rank() {
  return rank_alone().rank;
}

int get_world_size() {
  return rank_alone().size;
}

}  // namespace trireme
