#include "trireme/launch/clusters/cluster.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "trireme/core/error.h"
#include "trireme/core/parallel_env.h"
#include "trireme/launch/nodes/seat.h"
#include "trireme/launch/worker_environment.h"

namespace trireme::launch {
namespace {

// Below the ports that kernels give out, so that a coordinator finds its own free.
constexpr uint64_t kFirstPort = 10'000, kPorts = 20'000;

/// The launchers of one job come to the same port; jobs that share a machine rarely do.
std::string port_of(const std::string& job) {
  uint64_t sum = 0;
  for (const char c : job) sum = sum * 131 + static_cast<unsigned char>(c);
  return std::to_string(kFirstPort + sum % kPorts);
}

std::string text_of(const Environment& variables, std::string_view name) {
  return value_of(variables, name).value_or("");
}

/// What srun and mpirun say. Variables of other launchers, such as RANK, describe another job here, if any.
ParallelEnv::Variables of_schedulers(const Environment& variables) {
  ParallelEnv::Variables found;
  for (const auto& [name, text] : variables)
    for (const std::string_view family : {"SLURM_", "OMPI_", "PMI_", "MPI_"})
      if (name.starts_with(family) && !text.empty()) found[name] = text;
  return found;
}

Given given_by(const Environment& variables, const std::string& name) {
  return {name, text_of(variables, name)};
}

void require_one_a_machine(const ParallelEnv& env, std::string_view starter, std::string_view advice) {
  if (env.local_world_size == 1) return;
  throw UsageError(
      "{} has started {} launchers on this machine, and each would start all of its processes; start one a machine "
      "({}), or the program itself without the launcher, or give --standalone",
      starter, env.local_world_size, advice);
}

/// The first of the variables that is set.
std::string set_name(const Environment& variables, const std::string& first, const std::string& second) {
  return value_of(variables, first) ? first : second;
}

std::vector<ClusterOption> slurm_options(const Environment& variables, const ParallelEnv& env) {
  require_one_a_machine(env, "srun", "srun --ntasks-per-node=1");
  const std::string job = text_of(variables, "SLURM_JOB_ID") + "." + text_of(variables, "SLURM_STEP_ID");
  const std::string list = set_name(variables, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST");
  const std::string host = first_host(text_of(variables, list));
  return {{"--nnodes", given_by(variables, set_name(variables, "SLURM_STEP_NUM_NODES", "SLURM_NNODES"))},
          {"--rank", given_by(variables, "SLURM_NODEID")},
          {"--master", {list + "[0]", host + ":" + port_of(job)}}};
}

// "505675776.0;tcp://192.0.2.2,10.0.0.1:51267;tcp6://…": where mpirun itself runs, and with it, usually, rank 0.
std::optional<std::string> address_of_mpirun(const std::string& uri) {
  constexpr std::string_view kScheme = ";tcp://";
  const size_t start = uri.find(kScheme);
  if (start == std::string::npos) return std::nullopt;
  const size_t first = start + kScheme.size();
  const std::string host = uri.substr(first, uri.find_first_of(",:", first) - first);
  return host.empty() ? std::nullopt : std::optional(host);
}

std::vector<ClusterOption> mpi_options(const Environment& variables, const ParallelEnv& env) {
  require_one_a_machine(env, "mpirun", "mpirun -N 1, or -ppn 1");
  std::vector<ClusterOption> options = {
      {"--nnodes", given_by(variables, set_name(variables, "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"))},
      {"--rank", given_by(variables, set_name(variables, "OMPI_COMM_WORLD_RANK", "PMI_RANK"))}};
  if (const auto host = address_of_mpirun(text_of(variables, "OMPI_MCA_orte_hnp_uri")))
    options.push_back(
        {"--master", {"OMPI_MCA_orte_hnp_uri[0]", *host + ":" + port_of(text_of(variables, "PMIX_NAMESPACE"))}});
  return options;
}

// Pods of an indexed Job are called after the Job and their index: "train-3".
std::vector<ClusterOption> pod_options(const Environment& variables) {
  const std::string index = text_of(variables, "JOB_COMPLETION_INDEX"), name = text_of(variables, "HOSTNAME");
  std::vector<ClusterOption> options = {{"--rank", given_by(variables, "JOB_COMPLETION_INDEX")}};
  if (!name.ends_with("-" + index)) return options;
  const std::string first = name.substr(0, name.size() - index.size()) + "0";
  options.push_back({"--master", {"pod 0", fmt::format("{}:{}", first, kDefaultStartPort - 1)}});
  return options;
}

}  // namespace

std::vector<ClusterOption> cluster_options(const Environment& variables) {
  if (is_indexed_pod(variables)) return pod_options(variables);
  const ParallelEnv env = ParallelEnv::from_variables(of_schedulers(variables));
  if (env.world_size == 1) return {};
  if (env.launcher == "slurm") return slurm_options(variables, env);
  if (env.launcher == "mpi") return mpi_options(variables, env);
  return {};
}

bool is_indexed_pod(const Environment& variables) {
  return value_of(variables, "JOB_COMPLETION_INDEX").has_value();
}

std::string first_host(const std::string& list) {
  std::string host;
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    host += list.substr(i + 1, list.find_first_of("-,]", i) - i - 1);
    i = std::min(list.find(']', i), list.size());
  }
  return host;
}

}  // namespace trireme::launch
