#include "trireme/launch/live/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "trireme/core/text.h"

namespace trireme::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSteps = 0, kTraining = 1, kFirstLane = 2;  // threads
constexpr size_t kMinCommon = 3;                          // collectives, for clocks to be compared

using CallKey = std::tuple<uint64_t, uint64_t, std::string>;

bool is_call(const TimelineSpan& span) {
  return span.kind == SpanKind::call || span.kind == SpanKind::background_call;
}

bool ends_everywhere_at_once(const TimelineSpan& span) {
  if (!is_call(span)) return false;
  for (const char* name : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
    if (span.name == name) return span.number > 0;
  return false;
}

// When the last rank of the node has left each collective.
std::map<CallKey, int64_t> ends_of(const NodeTrace& node) {
  std::map<CallKey, int64_t> ends;
  for (const RankTrace& rank : node)
    for (const TimelineSpan& span : rank.spans)
      if (ends_everywhere_at_once(span)) {
        int64_t& end = ends[{span.group, span.number, span.name}];
        end = std::max(end, span.start + span.length);
      }
  return ends;
}

int64_t clock_difference(const std::map<CallKey, int64_t>& ours, const std::map<CallKey, int64_t>& theirs) {
  std::vector<int64_t> differences;
  for (const auto& [key, end] : theirs)
    if (const auto same = ours.find(key); same != ours.end()) differences.push_back(same->second - end);
  if (differences.size() < kMinCommon) return 0;
  const auto middle = differences.begin() + static_cast<std::ptrdiff_t>(differences.size() / 2);
  std::nth_element(differences.begin(), middle, differences.end());
  return *middle;
}

// "" for what is not a phase; another node may have sent any number.
const char* phase_name(SpanKind kind) {
  constexpr const char* kNames[] = {"", "data", "forward", "backward", "optimizer", "evaluation", "save"};
  return kind >= SpanKind::data && kind <= SpanKind::save ? kNames[static_cast<int>(kind)] : "";
}

// Operations beside the main thread may overlap each other: each gets the first lane that is free.
class Lanes {
 public:
  int lane_for(const TimelineSpan& span) {
    const auto free = std::find_if(ends_.begin(), ends_.end(), [&](int64_t end) { return end <= span.start; });
    const auto lane = static_cast<size_t>(free - ends_.begin());
    if (free == ends_.end()) ends_.push_back(0);
    ends_[lane] = span.start + span.length;
    return kFirstLane + static_cast<int>(lane);
  }
  size_t count() const { return ends_.size(); }

 private:
  std::vector<int64_t> ends_;
};

Json name_event(const char* what, int rank, int thread, const std::string& name) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"tid", thread}, {"args", {{"name", printable(name)}}}};
}

Json span_event(const TimelineSpan& span, int rank, int thread) {
  const bool call = is_call(span);
  Json event{{"ph", "X"},
             {"name", call ? printable(span.name) : phase_name(span.kind)},
             {"cat", call ? "communication" : "phase"},
             {"pid", rank},
             {"tid", thread},
             {"ts", span.start},
             {"dur", span.length},
             {"args", {{"step", span.step}}}};
  if (call) event["args"].update({{"number", span.number}, {"bytes", span.bytes}});
  return event;
}

// A step lasts until the next one begins.
void add_steps(Json& events, const RankTrace& rank, const std::vector<TimelineSpan>& spans) {
  int64_t end = 0;
  for (const TimelineSpan& span : spans) end = std::max(end, span.start + span.length);
  for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
    if (span->kind != SpanKind::step) continue;
    events.push_back({{"ph", "X"},
                      {"name", "step " + std::to_string(span->step)},
                      {"cat", "step"},
                      {"pid", rank.rank},
                      {"tid", kSteps},
                      {"ts", span->start},
                      {"dur", std::max<int64_t>(0, end - span->start)},
                      {"args", {{"step", span->step}}}});
    end = span->start;
  }
}

void add_rank(Json& events, const RankTrace& rank) {
  std::vector<TimelineSpan> spans = rank.spans;
  std::stable_sort(spans.begin(), spans.end(), [](const TimelineSpan& a, const TimelineSpan& b) {
    return std::pair(a.start, -a.length) < std::pair(b.start, -b.length);
  });
  events.push_back(name_event("process_name", rank.rank, kSteps,
                              "rank " + std::to_string(rank.rank) + (rank.host.empty() ? "" : " on " + rank.host)));
  events.push_back(name_event("thread_name", rank.rank, kSteps, "steps"));
  events.push_back(name_event("thread_name", rank.rank, kTraining, "training"));
  add_steps(events, rank, spans);
  Lanes lanes;
  for (const TimelineSpan& span : spans) {
    if (!is_call(span) && *phase_name(span.kind) == '\0') continue;
    const bool beside = span.kind == SpanKind::background_call;
    events.push_back(span_event(span, rank.rank, beside ? lanes.lane_for(span) : kTraining));
  }
  for (size_t lane = 0; lane < lanes.count(); ++lane)
    events.push_back(name_event("thread_name", rank.rank, kFirstLane + static_cast<int>(lane),
                                "communication beside it" + (lane == 0 ? "" : " " + std::to_string(lane + 1))));
}

}  // namespace

void align_clocks(std::vector<NodeTrace>& nodes) {
  if (nodes.empty()) return;
  const auto ours = ends_of(nodes.front());
  for (size_t i = 1; i < nodes.size(); ++i) {
    const int64_t difference = clock_difference(ours, ends_of(nodes[i]));
    for (RankTrace& rank : nodes[i])
      for (TimelineSpan& span : rank.spans) span.start = std::max<int64_t>(0, span.start + difference);
  }
}

uint64_t left_out_of(const std::vector<NodeTrace>& nodes) {
  uint64_t count = 0;
  for (const NodeTrace& node : nodes)
    for (const RankTrace& rank : node) count += rank.left_out;
  return count;
}

std::string chrome_trace(const std::string& job_id, const std::vector<NodeTrace>& nodes) {
  Json events = Json::array();
  for (const NodeTrace& node : nodes)
    for (const RankTrace& rank : node) add_rank(events, rank);
  const Json trace{{"traceEvents", std::move(events)},
                   {"displayTimeUnit", "ms"},
                   {"otherData", {{"job_id", printable(job_id)}, {"truncated", left_out_of(nodes)}}}};
  return trace.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string missing_trace_words(const StepRange& asked, int64_t first, int64_t last) {
  const std::string seen = last < 0    ? "no rank recorded a step"
                           : first < 0 ? fmt::format("ranks were in steps up to {}", last)
                                       : fmt::format("ranks were in steps {} to {}", first, last);
  return fmt::format("{}, asked were {} to {}", seen, asked.first, asked.last - 1);
}

NodeTrace trace_of(NodeView view) {
  NodeTrace trace;
  for (RankTimeline& timeline : view.timelines) {
    RankTrace rank{.rank = timeline.rank, .spans = std::move(timeline.spans), .left_out = timeline.left_out};
    for (const RankView& known : view.ranks)
      if (known.rank == timeline.rank) rank.host = known.host;
    trace.push_back(std::move(rank));
  }
  return trace;
}

}  // namespace trireme::launch
