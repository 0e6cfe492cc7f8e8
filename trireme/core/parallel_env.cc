#include "trireme/core/parallel_env.h"

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>

#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/text.h"

namespace trireme {
namespace {

using Variables = ParallelEnv::Variables;
using Names = std::initializer_list<const char*>;

constexpr int kMostRanks = 1 << 24;
constexpr int64_t kLongestTimeout = int64_t{1} << 40;  // milliseconds; some 35 years

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
    const int found = static_cast<int>(number(variables, name, low, kMostRanks));
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
  const auto paddle_nodes = parse_int(value(variables, "PADDLE_NNODES"), 1, kMostRanks);
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

// Paddle's order: MASTER_ADDR with MASTER_PORT, else PADDLE_MASTER, else trainer 0's endpoint.
std::optional<Endpoint> read_master(const ParallelEnv& env, const Variables& variables) {
  if (has(variables, "MASTER_ADDR") && has(variables, "MASTER_PORT"))
    return Endpoint{value(variables, "MASTER_ADDR"), static_cast<uint16_t>(number(variables, "MASTER_PORT", 1, 65535))};
  if (has(variables, "PADDLE_MASTER")) return parse_endpoint(value(variables, "PADDLE_MASTER"), "PADDLE_MASTER");
  if (!env.trainer_endpoints.empty()) return parse_endpoint(env.trainer_endpoints[0], "PADDLE_TRAINER_ENDPOINTS");
  if (env.world_size == 1) return std::nullopt;
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
    env.pg_timeout = std::chrono::milliseconds(number(variables, "PADDLE_PG_TIMEOUT", 1, kLongestTimeout));
}

void read_launched(ParallelEnv& env, const Variables& variables) {
  env.launched = true;
  read_rank(env, variables);
  read_endpoints(env, variables);
  read_place(env, variables);
  check_place(env);
  env.master = read_master(env, variables);
  env.restart_count = agreed(variables, {"TORCHELASTIC_RESTART_COUNT"}, 0).value_or(0);
}

constexpr const char* kRead[] = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RESTART_COUNT",
    "PADDLE_TRAINER_ID",
    "PADDLE_TRAINERS_NUM",
    "PADDLE_LOCAL_RANK",
    "PADDLE_LOCAL_SIZE",
    "PADDLE_RANK_IN_NODE",
    "PADDLE_NNODES",
    "PADDLE_MASTER",
    "PADDLE_CURRENT_ENDPOINT",
    "PADDLE_TRAINER_ENDPOINTS",
    "PADDLE_DISTRI_BACKEND",
    "PADDLE_PG_TIMEOUT",
    "PADDLE_BACKUP_ENV_PATH",
    "FLAGS_selected_gpus",
    "FLAGS_nccl_nrings",
};

Variables read_variables() {
  Variables variables;
  for (const char* name : kRead)
    if (const auto found = env::get_nonempty(name)) variables[name] = *found;
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

bool is_launched(const Variables& variables) {
  return speaks_paddle(variables) || speaks_torchrun(variables);
}

// Programs ask for their rank again and again: no file is read for it.
RankInfo rank_alone() {
  ParallelEnv env;
  const Variables variables = read_variables();
  if (is_launched(variables)) read_rank(env, variables);
  return env;
}

}  // namespace

ParallelEnv ParallelEnv::from_variables(const Variables& variables) {
  ParallelEnv env;
  if (is_launched(variables)) read_launched(env, variables);
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
