#include "trireme/launch/live/node_collector.h"

#include <algorithm>

#include "trireme/watch/process_state.h"
#include "trireme/watch/snapshot.h"

namespace trireme::launch {
namespace {

std::vector<Span> open_spans(const watch::Ring& ring, int64_t now) {
  std::vector<Span> open;
  if (const watch::Phase phase = ring.phase(); phase != watch::Phase::unknown)
    open.push_back({.started = std::min(ring.phase_since(), now), .ended = now, .step = ring.step(), .phase = phase});
  for (const watch::CallRecord& call : ring.calls())
    if (call.open())
      open.push_back({.kind = Span::Kind::call,
                      .started = std::min(call.started, now),
                      .ended = now,
                      .step = ring.step(),
                      .name = call.operation,
                      .blocking = call.blocking == 1});
  return open;
}

// The call that holds the rank up, or else the phase of its training.
void describe_activity(const watch::RankSnapshot& seen, RankView& view) {
  view.activity = watch::words_of(seen.phase);
  view.waits_ms = 0;
  for (const watch::Call& call : seen.calls) {
    if (!call.open || !call.blocking) continue;
    view.activity = watch::describe(call);
    view.waits_ms = call.age_ms;
    return;
  }
}

// The rank itself, where the worker is a script around it. The pid in the ring may be one of another container.
int process_of(const watch::Ring* ring, int worker) {
  const int writer = ring ? ring->owner() : 0;
  return writer != 0 && watch::descends_from(writer, worker) ? writer : worker;
}

}  // namespace

void NodeCollector::begin(const std::vector<RankFacts>& ranks, std::shared_ptr<const RankRings> rings) {
  rings_ = std::move(rings);
  over_ = false;
  locals_.clear();
  views_.clear();
  for (const RankFacts& facts : ranks) {
    locals_.push_back({.facts = facts});
    views_.push_back({.rank = facts.rank, .node = facts.node, .host = facts.host, .device = facts.device});
  }
}

RankHistory& NodeCollector::history_of(int rank) {
  return histories_.try_emplace(rank, options_.epoch, options_.traced).first->second;
}

const RankHistory* NodeCollector::history(int rank) const {
  const auto found = histories_.find(rank);
  return found == histories_.end() ? nullptr : &found->second;
}

size_t NodeCollector::read_events() {
  size_t most = 0;
  for (size_t place = 0; rings_ && place < locals_.size(); ++place) {
    Local& local = locals_[place];
    const watch::NewEvents found = rings_->entries()[place].ring->events_since(local.next_event);
    local.next_event = found.next;
    most = std::max<size_t>(most, found.events.size() + found.lost);
    history_of(local.facts.rank).take(found);
  }
  return most;
}

void NodeCollector::look(const std::vector<WorkerState>& workers, int64_t now) {
  for (size_t place = 0; !over_ && place < std::min(workers.size(), locals_.size()); ++place)
    look(place, workers[place], now);
}

void NodeCollector::look(size_t place, const WorkerState& worker, int64_t now) {
  Local& local = locals_[place];
  RankView& view = views_[place];
  const watch::Ring* const ring = rings_ ? rings_->entries()[place].ring.get() : nullptr;
  const bool ended_before = view.ended;
  view.ended = worker.ended;
  view.failed = worker.failed;
  view.records = ring && ring->owner() != 0;
  if (!worker.ended && worker.pid != 0) view.pid = process_of(ring, worker.pid);
  if (view.records) look_at_ring(*ring, view, now);
  if (view.records && !ended_before) look_at_shares(*ring, view, now);  // its end is not computing
  if (!worker.ended) return look_at_process(local, view, now);
  view.state = worker.words;
  view.cpu = view.memory = kUnknown;
  view.steps_per_second = view.samples_per_second = kUnknown;
  view.activity.clear();
  view.waits_ms = 0;
}

void NodeCollector::look_at_process(Local& local, RankView& view, int64_t now) {
  if (view.pid == 0) return;
  view.state = watch::words_of(watch::read_process_state(view.pid));
  const auto usage = watch::read_usage(view.pid);
  if (!usage) return;
  const double seconds = static_cast<double>(now - local.looked) / 1e9;
  const bool same = local.pid == view.pid && local.cpu_seconds >= 0 && seconds > 0;
  view.cpu = same ? std::max(0.0, usage->cpu_seconds - local.cpu_seconds) / seconds : kUnknown;
  view.cpu_seconds = usage->cpu_seconds;
  view.memory = usage->memory_bytes;
  local.cpu_seconds = usage->cpu_seconds;
  local.pid = view.pid;
  local.looked = now;
}

void NodeCollector::look_at_ring(const watch::Ring& ring, RankView& view, int64_t now) {
  RankHistory& history = history_of(view.rank);
  history.note_samples(ring.samples(), now);
  view.step = ring.step();
  view.goal = ring.goal();
  view.samples = std::max<int64_t>(0, ring.samples());
  view.steps_per_second = history.steps_per_second(now).value_or(kUnknown);
  view.samples_per_second = history.samples_per_second(now).value_or(kUnknown);
  view.operations = history.operations();
  view.lost = history.lost();
  for (const auto& [name, curve] : history.curves()) view.values[name] = curve.newest()->value;
  describe_activity(watch::take_snapshot(ring, now, (now - options_.epoch) / 1'000'000), view);
}

void NodeCollector::look_at_shares(const watch::Ring& ring, RankView& view, int64_t now) {
  const RankHistory& history = history_of(view.rank);
  view.shares = history.shares(now, open_spans(ring, now));
  view.phases = history.phase_times(now);
}

std::optional<RankTimeline> NodeCollector::timeline(int rank, int64_t now, size_t most_spans) const {
  const RankHistory* const found = history(rank);
  if (!found) return std::nullopt;
  RankTimeline timeline = timeline_of(rank, found->spans(), options_.epoch, now, most_spans);
  if (const watch::Ring* const ring = ring_of(rank))
    for (const Span& span : open_spans(*ring, now)) timeline.spans.push_back(timeline_span(span, options_.epoch));
  return timeline;
}

// Of a rank that runs and records.
const watch::Ring* NodeCollector::ring_of(int rank) const {
  for (size_t place = 0; rings_ && place < views_.size(); ++place)
    if (views_[place].rank == rank && views_[place].records && !views_[place].ended)
      return rings_->entries()[place].ring.get();
  return nullptr;
}

std::vector<RankTimeline> NodeCollector::timelines(int64_t now, size_t most_spans) const {
  std::vector<RankTimeline> all;
  for (const RankView& view : views_)
    if (auto one = timeline(view.rank, now, most_spans)) all.push_back(std::move(*one));
  return all;
}

bool NodeCollector::trace_complete() const {
  bool any = false;
  for (const RankView& view : views_) {
    if (!view.records) continue;
    const RankHistory* const found = history(view.rank);
    if (!view.ended && !(found && found->trace_complete())) return false;
    any = true;
  }
  return any;
}

std::vector<RankTimeline> NodeCollector::trace(size_t most_spans) const {
  std::vector<RankTimeline> all;
  for (const RankView& view : views_) {
    const RankHistory* const found = history(view.rank);
    if (!found || found->traced().empty()) continue;
    const std::vector<Span>& traced = found->traced();
    const auto end = traced.begin() + static_cast<std::ptrdiff_t>(std::min(traced.size(), most_spans));
    all.push_back(timeline_of(view.rank, {traced.begin(), end}, options_.epoch, traced.back().ended, most_spans));
    all.back().left_out = found->untraced() + traced.size() - all.back().spans.size();
  }
  return all;
}

}  // namespace trireme::launch
