#include "trireme/launch/live/trace_collector.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "trireme/core/clock.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"

namespace trireme::launch {
namespace {

constexpr Millis kOtherTracesTime{10'000};  // for the other nodes to send their parts
constexpr size_t kMaxSentSpans = 8'000;     // of a node, to node 0: up to 1.1 MB; etcd takes up to 1.5 MB
constexpr const char* kTraceFile = "trace.json";

std::string why_missing(const StepRange& steps, const NodeCollector& collector, const JobView& job) {
  int64_t first = -1, last = -1;
  for (const RankView& rank : collector.ranks())
    if (const RankHistory* const found = collector.history(rank.rank); found && found->first_step() >= 0)
      first = first < 0 ? found->first_step() : std::min(first, found->first_step());
  for (const RankView& rank : job.ranks) last = std::max(last, rank.step);
  return missing_trace_words(steps, first, last);
}

}  // namespace

void TraceCollector::begin() {
  others_.clear();
  if (node_ != 0) done_ = false;
}

NodeView TraceCollector::own_part(const NodeCollector& collector) const {
  NodeView part{.node = node_, .ranks = collector.ranks()};
  const size_t ranks = std::max<size_t>(1, part.ranks.size());
  part.timelines = collector.trace(node_ == 0 ? RankHistory::kMaxTraced : kMaxSentSpans / ranks);
  return part;
}

std::optional<NodeView> TraceCollector::part_to_send(const NodeCollector& collector) {
  if (node_ == 0 || !active()) return std::nullopt;
  done_ = collector.trace_complete();
  return own_part(collector);
}

void TraceCollector::add(int node, NodeView part) {
  others_[node] = trace_of(std::move(part));
}

std::optional<CollectedTrace> TraceCollector::take(const NodeCollector& collector, const JobView& job, bool over) {
  if (node_ != 0 || !active()) return std::nullopt;
  if (!over && !collector.trace_complete()) return std::nullopt;
  if (others_deadline_.is_never()) others_deadline_ = Deadline::in(kOtherTracesTime);
  const bool all = static_cast<int>(others_.size()) + 1 >= job.nodes;
  if (!all && !over && !others_deadline_.passed()) return std::nullopt;
  done_ = true;
  CollectedTrace trace{.steps = *steps_};
  trace.nodes.push_back(trace_of(own_part(collector)));
  for (auto& [node, part] : others_) trace.nodes.push_back(std::move(part));
  others_.clear();
  const auto is_empty = [](const NodeTrace& node) { return node.empty(); };
  if (std::all_of(trace.nodes.begin(), trace.nodes.end(), is_empty))
    trace.missing = why_missing(*steps_, collector, job);
  return trace;
}

std::string write_trace(JobFiles& files, const std::string& job_id, CollectedTrace trace) try {
  const std::string path = files.path_of(kTraceFile);
  if (!trace.missing.empty()) {
    log_warning("{} is not written: {}", path, trace.missing);
    return "not written: " + trace.missing;
  }
  if (const uint64_t left_out = left_out_of(trace.nodes); left_out > 0)
    log_warning(
        "{} lacks the last {} spans: up to {} of a rank are kept, and of a machine other than node 0 up to {}; "
        "trace fewer steps with --trace steps=FIRST:LAST",
        path, left_out, RankHistory::kMaxTraced, kMaxSentSpans);
  align_clocks(trace.nodes);
  if (!files.write(kTraceFile, chrome_trace(job_id, trace.nodes))) return "not written: see the launcher's messages";
  log_info("the trace is in {} (asked were steps {} to {})", path, trace.steps.first, trace.steps.last - 1);
  return path;
} catch (const std::exception& error) {  // bad_alloc: a trace of many ranks is large
  log_warning("{} is not written: {}", files.path_of(kTraceFile), printable(error.what()));
  return "not written: " + printable(error.what());
}

}  // namespace trireme::launch
