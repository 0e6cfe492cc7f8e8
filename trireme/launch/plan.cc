#include "trireme/launch/plan.h"

#include <fmt/format.h>

#include <stdexcept>
#include <string_view>

#include "trireme/core/error.h"
#include "trireme/core/shell.h"
#include "trireme/core/text.h"
#include "trireme/launch/worker_environment.h"

namespace trireme::launch {
namespace {

int count_workers(const std::vector<NodeInfo>& nodes) {
  int count = 0;
  for (const NodeInfo& node : nodes) count += node.processes;
  return count;
}

void check(const Request& request, const std::vector<NodeInfo>& nodes) {
  if (request.command.empty()) throw UsageError("no program to launch; write: trireme launch [options] PROGRAM [args]");
  if (nodes.empty()) throw UsageError("a job needs at least one node");
  for (const NodeInfo& node : nodes)
    if (node.ports.size() != static_cast<size_t>(node.processes))
      throw std::logic_error(
          fmt::format("node {} has {} ports for {} processes", node.host, node.ports.size(), node.processes));
  const int world_size = count_workers(nodes);
  for (const auto& [rank, command] : request.wrap)
    if (rank < 0 || rank >= world_size)
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

/// `worker` knows its place: rank, local rank, node.
WorkerPlan plan_worker(const JobFacts& job, WorkerPlan worker, std::shared_ptr<const std::string> endpoints) {
  const NodeInfo& node = job.nodes[static_cast<size_t>(worker.node)];
  worker.endpoint = {node.address, node.ports[static_cast<size_t>(worker.local_rank)]};
  worker.device = device_words(node, worker.local_rank);
  worker.command = command_of(job.request, worker.rank);
  worker.trainer_endpoints = std::move(endpoints);
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
  check(request, nodes);
  const auto endpoints = std::make_shared<const std::string>(all_endpoints(nodes));
  const JobFacts job{request, nodes, context, count_workers(nodes)};
  JobPlan plan;
  plan.nodes = nodes;
  plan.workers.reserve(static_cast<size_t>(job.world_size));
  for (int node = 0; node < static_cast<int>(nodes.size()); ++node)
    for (int local = 0; local < nodes[static_cast<size_t>(node)].processes; ++local)
      plan.workers.push_back(
          plan_worker(job, {.rank = plan.world_size(), .local_rank = local, .node = node}, endpoints));
  return plan;
}

}  // namespace trireme::launch
