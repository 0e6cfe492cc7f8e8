#include "trireme/launch/live/job_view.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/core/whole_numbers.h"

namespace trireme::watch {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Goal, epoch, epochs, last_step)
}  // namespace trireme::watch

namespace trireme::launch {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Shares, compute, communication, data, background)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PhaseTimes, data, forward, backward, optimizer)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(OperationTotals, count, bytes, seconds)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankView, rank, node, host, device, pid, state, ended, failed, records, step, goal,
                                   steps_per_second, samples_per_second, samples, cpu, cpu_seconds, memory, shares,
                                   phases, activity, waits_ms, lost, operations)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TimelineSpan, start, length, kind, step, name, bytes, group, number)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankTimeline, rank, now, spans, left_out)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LogTail, rank, path, text)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NodeView, node, ranks, timelines, log)

namespace {

constexpr size_t kMaxRanks = 65536;
constexpr int64_t kMaxTime = int64_t{1} << 53;  // microseconds: what a page can count

// JSON has no NaN: such a value is written as null.
json values_json(const std::map<std::string, double>& values) {
  json object = json::object();
  for (const auto& [name, value] : values) object[name] = value;
  return object;
}

std::map<std::string, double> values_from(const json& object) {
  std::map<std::string, double> values;
  for (const auto& [name, value] : object.items())
    if (values.size() < RankHistory::kMaxNames)
      values[printable(name)] = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
  return values;
}

void clean(RankView& rank) {
  for (std::string* text : {&rank.host, &rank.device, &rank.state, &rank.activity}) *text = printable(*text);
  if (rank.operations.size() > RankHistory::kMaxNames) throw PeerError("a node sent too many operations of a rank");
}

void check(const NodeView& view) {
  if (view.ranks.size() > kMaxRanks || view.timelines.size() > kMaxRanks)
    throw PeerError("a node sent {} ranks and {} time lines", view.ranks.size(), view.timelines.size());
  for (const RankTimeline& timeline : view.timelines)
    for (const TimelineSpan& span : timeline.spans)
      if (span.start < 0 || span.start > kMaxTime || span.length < 0 || span.length > kMaxTime)
        throw PeerError("a node sent a span of rank {} with a time out of range", timeline.rank);
}

static_assert(static_cast<int>(SpanKind::data) == static_cast<int>(watch::Phase::data));
static_assert(static_cast<int>(SpanKind::save) == static_cast<int>(watch::Phase::save));

SpanKind kind_of(const Span& span) {
  if (span.kind == Span::Kind::step) return SpanKind::step;
  if (span.kind == Span::Kind::phase) return static_cast<SpanKind>(span.phase);
  return span.blocking ? SpanKind::call : SpanKind::background_call;
}

// For require_whole_numbers().
json pattern_of_views() {
  NodeView view{.ranks = {RankView()}, .timelines = {RankTimeline{.spans = {TimelineSpan()}}}};
  view.ranks[0].operations["*"] = {};
  return view;
}

}  // namespace

std::string to_json(const NodeView& view) {
  json object = view;
  for (size_t i = 0; i < view.ranks.size(); ++i) object["ranks"][i]["values"] = values_json(view.ranks[i].values);
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

NodeView node_view_from_json(const std::string& text) try {
  const json object = json::parse(text);
  require_whole_numbers(object, pattern_of_views());
  auto view = object.get<NodeView>();
  check(view);
  for (size_t i = 0; i < view.ranks.size(); ++i) {
    view.ranks[i].values = values_from(object.at("ranks").at(i).at("values"));
    clean(view.ranks[i]);
  }
  return view;
} catch (const json::exception& error) {
  throw PeerError("a node sent the state of its ranks in a form that cannot be read ({})", printable(error.what()));
}

TimelineSpan timeline_span(const Span& span, int64_t epoch) {
  // Both ends are rounded: with a rounded length a span could end after the one around it.
  const auto microseconds = [&](int64_t time) { return std::clamp<int64_t>((time - epoch) / 1000, 0, kMaxTime); };
  const int64_t start = microseconds(span.started);
  return {.start = start,
          .length = std::max<int64_t>(0, microseconds(span.ended) - start),
          .kind = kind_of(span),
          .step = span.step,
          .name = span.name,
          .bytes = span.bytes,
          .group = span.group,
          .number = span.number};
}

RankTimeline timeline_of(int rank, const std::deque<Span>& spans, int64_t epoch, int64_t now, size_t most) {
  RankTimeline timeline{.rank = rank, .now = std::max<int64_t>(0, (now - epoch) / 1000)};
  const size_t first = spans.size() - std::min(spans.size(), most);
  for (size_t i = first; i < spans.size(); ++i) timeline.spans.push_back(timeline_span(spans[i], epoch));
  return timeline;
}

}  // namespace trireme::launch
