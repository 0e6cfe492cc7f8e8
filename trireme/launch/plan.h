// Which process runs where: a pure function of the request and the nodes, without processes or sockets.
//
//   JobPlan plan = make_plan(request, {node0, node1}, {.restart = 0});
//   for (const WorkerPlan* worker : plan.workers_of(node)) start(worker->command, worker->environment);
//
// Words. A *node* is one launcher, usually one machine. A *worker* is one process of the job. *Rank* counts workers
// over all nodes in node order; *local rank* counts them on one node.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/core/net.h"
#include "trireme/launch/options/request.h"

namespace trireme::launch {

/// What one node knows about itself and tells the others. Travels as JSON (to_json / node_from_json).
struct NodeInfo {
  std::string host;                       // name for people
  std::string address;                    // numeric address at which the other nodes reach it
  std::string interface;                  // the network interface with that address
  std::vector<std::string> devices = {};  // the chosen GPUs by absolute id (number or UUID); empty: CPU
  int processes = 1;
  int cores = 1;
  std::vector<uint16_t> ports;  // one endpoint for each process
  uint16_t master_port = 0;     // MASTER_PORT, should this node become node 0
  std::string log_dir;          // absolute, on that node
  std::string machine = {};     // equal on nodes whose processes share memory; empty: on no other node
  bool operator==(const NodeInfo&) const = default;
};

using Environment = std::vector<std::pair<std::string, std::string>>;

struct WorkerPlan {
  int rank = 0;
  int local_rank = 0;
  int node = 0;
  Endpoint endpoint = {};
  std::string device = {};       // "GPU 5", "GPU 5,6" or "CPU"
  std::string cpu_backend = {};  // what will move the CPU tensors of a program that trains with Trireme: "shm"
  std::vector<std::string> command = {};
  Environment environment = {};         // what is added to the launcher's own environment
  std::vector<std::string> unset = {};  // what is taken out of the launcher's own environment
  // Every worker's endpoint in rank order, with commas; one text for all workers. Long ones are in no environment.
  std::shared_ptr<const std::string> trainer_endpoints = {};
};

struct JobPlan {
  std::vector<NodeInfo> nodes;
  std::vector<WorkerPlan> workers;  // in rank order
  int world_size() const { return static_cast<int>(workers.size()); }
  std::vector<const WorkerPlan*> workers_of(int node) const;
};

/// What the plan needs to know beyond the request and the nodes.
struct PlanContext {
  int restart = 0;          // how often the job was restarted
  bool amx_broken = false;  // the CPU announces AMX but dies of it (facts: oneDNN is then told to stay below it)
  Environment inherited;    // the launcher's environment: what is set there is not overridden by defaults
};

/// Throws UsageError (a worker to wrap that does not exist, no program).
JobPlan make_plan(const Request& request, const std::vector<NodeInfo>& nodes, const PlanContext& context);

std::string to_json(const NodeInfo& node);
/// Throws PeerError when the text is not a node's.
NodeInfo node_from_json(const std::string& text);

}  // namespace trireme::launch
