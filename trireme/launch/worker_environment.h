// The variables a worker starts with: all that Paddle's launcher sets and all that torchrun sets, so that scripts of
// both run unchanged. Pure.
//
//   worker.environment = worker_environment(job, worker);
//
// Variables come in three strengths: what the plan decides is always set; defaults (threads, interfaces, the
// CPU-instruction guard) give way to what the user has set; --env beats everything.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/launch/plan.h"

namespace trireme::launch {

/// PADDLE_TRAINER_ENDPOINTS of this length and more would not fit into an environment next to everything else (Paddle's
/// limit); it is then found in the backup file only.
inline constexpr size_t kMaxEndpoints = 48000;

/// What the workers of one job have in common.
struct JobFacts {
  const Request& request;
  const std::vector<NodeInfo>& nodes;
  const PlanContext& context;
  int world_size = 1;
};

/// `worker` must know its place (rank, local rank, node, endpoint, trainer_endpoints) already.
Environment worker_environment(const JobFacts& job, const WorkerPlan& worker);
/// Variables of the launcher that would mislead this worker.
std::vector<std::string> misleading_variables(const JobFacts& job, const WorkerPlan& worker);

/// The devices of a worker as indices into its node's list: its own one, a block of several, or a shared one. Empty on
/// CPU. Throws UsageError when the devices cannot be shared out evenly.
std::vector<int> device_indices(const NodeInfo& node, int local_rank);
/// Six letters, the same for the same job and node.
std::string pod_name(const std::string& job_id, int node);

/// The value of a variable, or nothing. Of several entries the last one counts.
std::optional<std::string> value_of(const Environment& environment, std::string_view name);

/// A variable of the workers that the launcher leaves to the user: --env wins over the environment of the launcher.
std::optional<std::string> users_setting(const Request& request, const Environment& inherited, std::string_view name);

/// Content of backup_env.<rank>.json: one object with the worker's variables, long endpoints included.
std::string backup_env_json(const WorkerPlan& worker);

}  // namespace trireme::launch
