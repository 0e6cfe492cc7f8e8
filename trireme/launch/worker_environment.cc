#include "trireme/launch/worker_environment.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/core/cpu_probe.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/core/token.h"

namespace trireme::launch {
namespace {

void set(Environment& environment, std::string_view name, std::string value) {
  for (auto& [known, old] : environment) {
    if (known != name) continue;
    old = std::move(value);
    return;
  }
  environment.emplace_back(name, std::move(value));
}

void set(Environment& environment, std::string_view name, int value) {
  set(environment, name, std::to_string(value));
}

bool has_long_endpoints(const WorkerPlan& worker) {
  return worker.trainer_endpoints->size() >= kMaxEndpoints;
}

const NodeInfo& node_of(const JobFacts& job, const WorkerPlan& worker) {
  return job.nodes[static_cast<size_t>(worker.node)];
}

void add_paddle(Environment& environment, const JobFacts& job, const WorkerPlan& worker) {
  const NodeInfo& node = node_of(job, worker);
  set(environment, "PADDLE_MASTER", to_string(Endpoint{job.nodes[0].address, job.nodes[0].master_port}));
  set(environment, "PADDLE_GLOBAL_SIZE", job.world_size);
  set(environment, "PADDLE_LOCAL_SIZE", node.processes);
  set(environment, "PADDLE_GLOBAL_RANK", worker.rank);
  set(environment, "PADDLE_LOCAL_RANK", worker.local_rank);
  set(environment, "PADDLE_NNODES", static_cast<int>(job.nodes.size()));
  set(environment, "PADDLE_CURRENT_ENDPOINT", to_string(worker.endpoint));
  set(environment, "PADDLE_TRAINER_ID", worker.rank);
  set(environment, "PADDLE_TRAINERS_NUM", job.world_size);
  if (!has_long_endpoints(worker)) set(environment, "PADDLE_TRAINER_ENDPOINTS", *worker.trainer_endpoints);
  set(environment, "PADDLE_RANK_IN_NODE", worker.local_rank);
  set(environment, "PADDLE_AUTO_CLUSTER", 0);
  set(environment, "PADDLE_LOG_DIR", node.log_dir);
  set(environment, "PADDLE_BACKUP_ENV_PATH", fmt::format("{}/backup_env.{}.json", node.log_dir, worker.rank));
  set(environment, "POD_NAME", pod_name(job.request.job_id, worker.node));
}

void add_devices(Environment& environment, const NodeInfo& node, int local_rank) {
  if (node.devices.empty()) {
    set(environment, "PADDLE_DISTRI_BACKEND", "gloo");
    return;
  }
  set(environment, "CUDA_VISIBLE_DEVICES", join(node.devices, ","));
  set(environment, "FLAGS_selected_gpus", fmt::format("{}", fmt::join(device_indices(node, local_rank), ",")));
}

void add_torchrun(Environment& environment, const JobFacts& job, const WorkerPlan& worker) {
  set(environment, "RANK", worker.rank);
  set(environment, "WORLD_SIZE", job.world_size);
  set(environment, "LOCAL_RANK", worker.local_rank);
  set(environment, "LOCAL_WORLD_SIZE", node_of(job, worker).processes);
  set(environment, "GROUP_RANK", worker.node);
  set(environment, "GROUP_WORLD_SIZE", static_cast<int>(job.nodes.size()));
  set(environment, "ROLE_RANK", worker.rank);
  set(environment, "ROLE_WORLD_SIZE", job.world_size);
  set(environment, "ROLE_NAME", "default");
  set(environment, "MASTER_ADDR", job.nodes[0].address);
  set(environment, "MASTER_PORT", job.nodes[0].master_port);
  set(environment, "TORCHELASTIC_RESTART_COUNT", job.context.restart);
  set(environment, "TORCHELASTIC_MAX_RESTARTS", job.request.max_restart);
  set(environment, "TORCHELASTIC_RUN_ID", job.request.job_id);
  set(environment, "TORCHELASTIC_USE_AGENT_STORE", "False");
}

// Inside one machine NCCL finds its way by itself, and on the loopback interface alone it would not look further.
bool nccl_needs_interface(const JobFacts& job, const NodeInfo& node) {
  return job.nodes.size() > 1 || node.interface != "lo";
}

void add_defaults(Environment& environment, const JobFacts& job, const NodeInfo& node) {
  const auto set_default = [&](std::string_view name, const std::string& value) {
    if (value_of(job.context.inherited, name).value_or("").empty()) set(environment, name, value);
  };
  set_default("OMP_NUM_THREADS", std::to_string(std::max(1, node.cores / node.processes)));
  if (job.context.amx_broken) set_default("ONEDNN_MAX_CPU_ISA", kCpuWithoutAmx);
  if (node.interface.empty()) return;
  set_default("GLOO_SOCKET_IFNAME", node.interface);
  if (nccl_needs_interface(job, node)) set_default("NCCL_SOCKET_IFNAME", node.interface);
}

}  // namespace

Environment worker_environment(const JobFacts& job, const WorkerPlan& worker) {
  const NodeInfo& node = node_of(job, worker);
  Environment environment;
  add_paddle(environment, job, worker);
  add_devices(environment, node, worker.local_rank);
  add_torchrun(environment, job, worker);
  add_defaults(environment, job, node);
  set(environment, "TRIREME_JOB_ID", job.request.job_id);
  if (job.nodes.size() > 1) set(environment, "TRIREME_LINK_TIMEOUT", std::to_string(job.request.link_timeout.count()));
  for (const auto& [name, value] : job.request.environment) set(environment, name, value);
  return environment;
}

std::vector<std::string> misleading_variables(const JobFacts& job, const WorkerPlan& worker) {
  std::vector<std::string> candidates = {"TRIREME_SPAWN"};
  if (has_long_endpoints(worker)) candidates.push_back("PADDLE_TRAINER_ENDPOINTS");
  if (node_of(job, worker).devices.empty()) candidates.push_back("FLAGS_selected_gpus");
  std::erase_if(candidates, [&](const std::string& name) {
    return !value_of(job.context.inherited, name) || value_of(worker.environment, name);
  });
  return candidates;
}

std::vector<int> device_indices(const NodeInfo& node, int local_rank) {
  const int devices = static_cast<int>(node.devices.size());
  if (devices == 0) return {};
  if (devices <= node.processes) return {local_rank % devices};
  if (devices % node.processes != 0)
    throw UsageError("node {}: {} GPUs ({}) cannot be shared out evenly to {} processes; choose {} of them with --gpus",
                     node.host, devices, join(node.devices, ","), node.processes, node.processes);
  const int share = devices / node.processes;
  std::vector<int> indices;
  for (int i = 0; i < share; ++i) indices.push_back(local_rank * share + i);
  return indices;
}

std::string pod_name(const std::string& job_id, int node) {
  const std::string hash = sha256(fmt::format("{}/{}", job_id, node));
  std::string name;
  for (int i = 0; i < 6; ++i)
    name += static_cast<char>('a' + static_cast<unsigned char>(hash[static_cast<size_t>(i)]) % 26);
  return name;
}

std::optional<std::string> value_of(const Environment& environment, std::string_view name) {
  std::optional<std::string> found;
  for (const auto& [known, value] : environment)
    if (known == name) found = value;
  return found;
}

std::optional<std::string> users_setting(const Request& request, const Environment& inherited, std::string_view name) {
  const auto given = value_of(request.environment, name);
  return given ? given : value_of(inherited, name);
}

std::string backup_env_json(const WorkerPlan& worker) {
  nlohmann::json object = nlohmann::json::object();
  object["PADDLE_TRAINER_ENDPOINTS"] = *worker.trainer_endpoints;
  for (const auto& [name, value] : worker.environment) object[name] = value;
  return object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace trireme::launch
