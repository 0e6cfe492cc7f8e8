#include "trireme/launch/live/rank_history.h"

#include <algorithm>

#include "trireme/core/text.h"

namespace trireme::launch {
namespace {

using watch::EventKind;
using watch::EventRecord;
using watch::Phase;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kWindow = 10 * kSecond;  // of speeds and shares
constexpr size_t kMaxMarks = 4096;

using Interval = std::pair<int64_t, int64_t>;

// How much of `from`..`to` the intervals cover together.
int64_t covered(std::vector<Interval> intervals, int64_t from, int64_t to) {
  std::sort(intervals.begin(), intervals.end());
  int64_t total = 0;
  for (const auto& [start, end] : intervals) {
    const int64_t begin = std::max(start, from);
    const int64_t stop = std::min(end, to);
    if (stop <= begin) continue;
    total += stop - begin;
    from = stop;
  }
  return total;
}

// Over the marks of the window, or the last two. A silence of twice the usual time counts.
template <typename Mark>
std::optional<double> speed(const std::deque<Mark>& marks, int64_t now) {
  if (marks.size() < 2) return std::nullopt;
  auto first = std::find_if(marks.begin(), marks.end(), [&](const Mark& mark) { return mark.when >= now - kWindow; });
  if (marks.end() - first < 2) first = marks.end() - 2;
  const int64_t last = marks.back().when;
  const int64_t usual = (last - first->when) / (marks.end() - first - 1);
  const int64_t time = (now - last > 2 * usual ? now : last) - first->when;
  if (time <= 0) return std::nullopt;
  return static_cast<double>(marks.back().count - first->count) * kSecond / static_cast<double>(time);
}

template <typename Mark>
void add_mark(std::deque<Mark>& marks, Mark mark) {
  if (!marks.empty() && mark.count < marks.back().count) marks.clear();  // the training restarted
  marks.push_back(mark);
  while (marks.size() > kMaxMarks || (marks.size() > 2 && marks[1].when < mark.when - 3 * kWindow)) marks.pop_front();
}

}  // namespace

void RankHistory::take(const watch::NewEvents& found) {
  lost_ += found.lost;
  for (const EventRecord& event : found.events) take(event);
}

void RankHistory::take(const EventRecord& event) {
  if (first_ == 0) first_ = std::max<int64_t>(1, event.started);
  switch (event.kind) {
    case EventKind::step:
      return take_step(event);
    case EventKind::phase:
      return keep({.started = event.started, .ended = event.ended, .step = event.step, .phase = event.phase});
    case EventKind::call:
      return take_call(event);
    case EventKind::value:
      return take_value(event);
    case EventKind::none:
      return;
  }
}

void RankHistory::take_step(const EventRecord& event) {
  add_mark(steps_, Mark{event.ended, event.step});
  first_step_ = first_step_ < 0 ? event.step : std::min(first_step_, event.step);
  if (range_ && event.step >= range_->last) trace_complete_ = true;
  keep({.kind = Span::Kind::step, .started = event.ended, .ended = event.ended, .step = event.step});
}

void RankHistory::take_value(const EventRecord& event) {
  const std::string name = printable(event.name);
  if (!curves_.contains(name) && curves_.size() >= kMaxNames) return;
  curves_[name].add({event.step, static_cast<double>(event.ended - start_) / kSecond, event.value});
}

void RankHistory::take_call(const EventRecord& event) {
  std::string name = printable(event.name);
  if (operations_.contains(name) || operations_.size() < kMaxNames) {
    OperationTotals& totals = operations_[name];
    ++totals.count;
    totals.bytes += event.bytes;
    totals.seconds += static_cast<double>(event.ended - event.started) / kSecond;
  }
  keep({.kind = Span::Kind::call,
        .started = event.started,
        .ended = event.ended,
        .step = event.step,
        .name = std::move(name),
        .blocking = event.blocking == 1,
        .bytes = event.bytes,
        .group = event.group,
        .number = event.call});
}

void RankHistory::keep(Span span) {
  if (range_ && span.step >= range_->first && span.step < range_->last) {
    if (traced_.size() < kMaxTraced)
      traced_.push_back(span);
    else
      ++untraced_;
  }
  spans_.push_back(std::move(span));
  if (spans_.size() > kMaxSpans) spans_.pop_front();
}

void RankHistory::note_samples(int64_t samples, int64_t now) {
  add_mark(samples_, Mark{now, samples});
}

std::optional<double> RankHistory::steps_per_second(int64_t now) const {
  return speed(steps_, now);
}

std::optional<double> RankHistory::samples_per_second(int64_t now) const {
  if (samples_.empty() || samples_.back().count == 0) return std::nullopt;
  return speed(samples_, now);
}

PhaseTimes RankHistory::phase_times(int64_t now) const {
  constexpr std::ptrdiff_t kMarks = 3;  // of two steps
  if (std::ssize(steps_) < kMarks) return {};
  auto first = std::find_if(steps_.begin(), steps_.end(), [&](const Mark& mark) { return mark.when >= now - kWindow; });
  if (steps_.end() - first < kMarks) first = steps_.end() - kMarks;
  const int64_t from = first->when, to = steps_.back().when;
  const auto steps = static_cast<double>(steps_.back().count - first->count);
  std::vector<Interval> calls;
  std::map<Phase, std::vector<Interval>> phases;
  for (auto span = spans_.rbegin(); span != spans_.rend() && span->ended >= from; ++span) {
    if (span->kind == Span::Kind::call) calls.emplace_back(span->started, span->ended);
    if (span->kind == Span::Kind::phase) phases[span->phase].emplace_back(span->started, span->ended);
  }
  if (steps <= 0 || phases.contains(Phase::evaluation) || phases.contains(Phase::save)) return {};
  const int64_t in_calls = covered(calls, from, to);
  const auto own_ms = [&](Phase phase) {
    std::vector<Interval> both = calls;
    both.insert(both.end(), phases[phase].begin(), phases[phase].end());
    return static_cast<double>(covered(std::move(both), from, to) - in_calls) / 1e6 / steps;
  };
  return {own_ms(Phase::data), own_ms(Phase::forward), own_ms(Phase::backward), own_ms(Phase::optimizer)};
}

Shares RankHistory::shares(int64_t now, const std::vector<Span>& open) const {
  const int64_t from = std::max(now - kWindow, first_ == 0 ? now : first_);
  std::vector<Interval> data, calls, background;
  const auto sort_in = [&](const Span& span) {
    const Interval interval{span.started, span.ended};
    if (span.kind == Span::Kind::call) (span.blocking ? calls : background).push_back(interval);
    if (span.kind == Span::Kind::phase && span.phase == Phase::data) data.push_back(interval);
  };
  for (auto span = spans_.rbegin(); span != spans_.rend() && span->ended >= from; ++span) sort_in(*span);
  std::for_each(open.begin(), open.end(), sort_in);
  if (now <= from) return {.compute = 1, .communication = 0, .data = 0, .background = 0};
  const auto total = static_cast<double>(now - from);
  Shares shares{.background = static_cast<double>(covered(background, from, now)) / total};
  const auto waits = static_cast<double>(covered(calls, from, now));
  calls.insert(calls.end(), data.begin(), data.end());
  const auto both = static_cast<double>(covered(calls, from, now));
  shares.communication = waits / total;
  shares.data = (both - waits) / total;
  shares.compute = 1 - both / total;
  return shares;
}

}  // namespace trireme::launch
