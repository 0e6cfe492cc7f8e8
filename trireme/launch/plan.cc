#include "trireme/launch/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>

#include "trireme/core/error.h"
#include "trireme/core/shell.h"
#include "trireme/core/text.h"
#include "trireme/core/transport.h"
#include "trireme/launch/worker_environment.h"

namespace trireme::launch {
namespace {

int count_workers(const std::vector<NodeInfo>& nodes) {
  int count = 0;
  for (const NodeInfo& node : nodes) count += node.processes;
  return count;
}

void check(const Request& request, const std::vector<NodeInfo>& nodes, int restart) {
  if (request.command.empty()) throw UsageError("no program to launch; write: trireme launch [options] PROGRAM [args]");
  if (nodes.empty()) throw UsageError("a job needs at least one node");
  for (const NodeInfo& node : nodes)
    if (node.ports.size() != static_cast<size_t>(node.processes))
      throw std::logic_error(
          fmt::format("node {} has {} ports for {} processes", node.host, node.ports.size(), node.processes));
  const int world_size = count_workers(nodes);
  for (const auto& [rank, command] : request.wrap)  // a later attempt may have fewer ranks
    if (rank < 0 || (rank >= world_size && restart == 0))
      throw UsageError("--wrap {}:{}: there is no rank {}; the job has ranks 0 to {}", rank, command, rank,
                       world_size - 1);
}

std::string all_endpoints(const std::vector<NodeInfo>& nodes) {
  std::vector<std::string> endpoints;
  for (const NodeInfo& node : nodes)
    for (const uint16_t port : node.ports) endpoints.push_back(to_string(Endpoint{node.address, port}));
  return join(endpoints, ",");
}

std::string device_words(const NodeInfo& node, int local_rank) {
  std::vector<std::string> ids;
  for (const int index : device_indices(node, local_rank)) ids.push_back(node.devices[static_cast<size_t>(index)]);
  return ids.empty() ? "CPU" : "GPU " + join(ids, ",");
}

// The first node on the same machine.
int first_node_beside(const std::vector<NodeInfo>& nodes, size_t node) {
  const auto is_beside = [&](const NodeInfo& other) {
    return !other.machine.empty() && other.machine == nodes[node].machine;
  };
  const auto found = std::find_if(nodes.begin(), nodes.end(), is_beside);
  return static_cast<int>(found == nodes.end() ? node : static_cast<size_t>(found - nodes.begin()));
}

// A wish that the program will refuse stays as it is: the program may be one that does not train with Trireme.
std::string cpu_backend(const JobFacts& job) {
  std::vector<int> host_of;
  for (size_t i = 0; i < job.nodes.size(); ++i)
    host_of.insert(host_of.end(), static_cast<size_t>(job.nodes[i].processes), first_node_beside(job.nodes, i));
  const auto inherited = value_of(job.context.inherited, "TRIREME_BACKEND");
  const std::string wanted = value_of(job.request.environment, "TRIREME_BACKEND").value_or(inherited.value_or(""));
  try {
    return to_string(choose_transport(host_of, wanted));
  } catch (const UsageError&) {
    return wanted;
  }
}

std::vector<std::string> wrapper_words(int rank, const std::string& text) {
  const auto words = split_words(text);
  if (!words) throw UsageError("--wrap {}:{}: a quote is not closed", rank, text);
  if (words->empty()) throw UsageError("--wrap {}: the command is missing; write --wrap RANK:CMD", rank);
  return *words;
}

std::vector<std::string> command_of(const Request& request, int rank) {
  const auto wrapper = request.wrap.find(rank);
  if (wrapper == request.wrap.end()) return request.command;
  std::vector<std::string> command = wrapper_words(rank, wrapper->second);
  command.insert(command.end(), request.command.begin(), request.command.end());
  return command;
}

/// `worker` knows its place (rank, local rank, node) and what is the same for all.
WorkerPlan plan_worker(const JobFacts& job, WorkerPlan worker) {
  const NodeInfo& node = job.nodes[static_cast<size_t>(worker.node)];
  worker.endpoint = {node.address, node.ports[static_cast<size_t>(worker.local_rank)]};
  worker.device = device_words(node, worker.local_rank);
  worker.command = command_of(job.request, worker.rank);
  worker.environment = worker_environment(job, worker);
  worker.unset = misleading_variables(job, worker);
  return worker;
}

}  // namespace

std::vector<const WorkerPlan*> JobPlan::workers_of(int node) const {
  std::vector<const WorkerPlan*> chosen;
  for (const WorkerPlan& worker : workers)
    if (worker.node == node) chosen.push_back(&worker);
  return chosen;
}

JobPlan make_plan(const Request& request, const std::vector<NodeInfo>& nodes, const PlanContext& context) {
  check(request, nodes, context.restart);
  const JobFacts job{request, nodes, context, count_workers(nodes)};
  WorkerPlan worker;  // what all have in common, then each in turn
  worker.cpu_backend = cpu_backend(job);
  worker.trainer_endpoints = std::make_shared<const std::string>(all_endpoints(nodes));
  JobPlan plan;
  plan.nodes = nodes;
  plan.workers.reserve(static_cast<size_t>(job.world_size));
  for (worker.node = 0; worker.node < static_cast<int>(nodes.size()); ++worker.node)
    for (worker.local_rank = 0; worker.local_rank < nodes[static_cast<size_t>(worker.node)].processes;
         ++worker.local_rank, ++worker.rank)
      plan.workers.push_back(plan_worker(job, worker));
  return plan;
}

}  // namespace trireme::launch
