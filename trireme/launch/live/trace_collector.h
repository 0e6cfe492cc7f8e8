// `--trace`: brings the traced steps of all nodes together on node 0.
//
//   if (auto part = traces.part_to_send(collector)) exchange.publish_trace(*part);    // nodes 1, 2 …
//   traces.add(1, std::move(part));                                                   // node 0
//   if (auto trace = traces.take(collector, job, false)) write_trace(files, "job", *std::move(trace));
//
// take() copies spans and formats nothing: the caller may hold a lock. write_trace() takes seconds for long traces: its
// caller must not. Thread rule: one thread at a time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/core/deadline.h"
#include "trireme/launch/live/job_files.h"
#include "trireme/launch/live/job_totals.h"
#include "trireme/launch/live/node_collector.h"
#include "trireme/launch/live/trace.h"

namespace trireme::launch {

struct CollectedTrace {
  StepRange steps;
  std::vector<NodeTrace> nodes = {};
  std::string missing = {};  // why no node has a span of these steps
};

class TraceCollector {
 public:
  TraceCollector(int node, const std::optional<StepRange>& steps) : node_(node), steps_(steps) {}

  /// An attempt begins: the other nodes send their parts again.
  void begin();
  /// Whether this node still records spans for the trace.
  bool active() const { return steps_ && !done_; }

  /// Nodes 1, 2 …: all traced steps, or those so far; nothing after all were sent.
  std::optional<NodeView> part_to_send(const NodeCollector& collector);

  /// Node 0: the part of another node.
  void add(int node, NodeView part);
  /// Node 0: the trace, once; nothing as long as ranks are in these steps or parts of other nodes are missing. With
  /// `over` it waits for neither.
  std::optional<CollectedTrace> take(const NodeCollector& collector, const JobView& job, bool over);

 private:
  NodeView own_part(const NodeCollector& collector) const;

  const int node_;
  const std::optional<StepRange> steps_;
  bool done_ = false;  // node 0: taken; others: sent in this attempt
  std::map<int, NodeTrace> others_;
  Deadline others_deadline_ = Deadline::never();
};

/// Writes trace.json. Returns its path, or "not written: " and why; logs the same.
std::string write_trace(JobFiles& files, const std::string& job_id, CollectedTrace trace);

}  // namespace trireme::launch
