// What one rank has done, made of the events of its ring: the spans of its last steps, its curves, how often and how
// long it was in which operation, and how fast it is.
//
//   RankHistory history(job_start);
//   history.take(ring.events_since(cursor));
//   history.note_samples(ring.samples(), now);
//   const Shares shares = history.shares(now, snapshot_of_the_present);
//
// Times are those of watch::now_ns(). Everything is bounded. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/launch/live/curve.h"
#include "trireme/launch/live/step_range.h"
#include "trireme/watch/ring.h"

namespace trireme::launch {

/// A phase or an operation on the time line; with no length the beginning of a step.
struct Span {
  enum class Kind { step, phase, call };
  Kind kind = Kind::phase;
  int64_t started = 0;
  int64_t ended = 0;
  int64_t step = -1;
  watch::Phase phase = watch::Phase::unknown;
  std::string name = {};  // of the operation
  bool blocking = false;  // the main thread was in it
  uint64_t bytes = 0;
  uint64_t group = 0;
  uint64_t number = 0;
};

struct OperationTotals {
  uint64_t count = 0;
  uint64_t bytes = 0;
  double seconds = 0;
};

/// Of the time of the last seconds. The first three add up to 1.
struct Shares {
  double compute = 0;        // all the rest
  double communication = 0;  // the main thread was in an operation of a group
  double data = 0;           // it waited for data
  double background = 0;     // an operation ran beside the main thread
};

/// Milliseconds a step in which the main thread was in a phase and in no operation of a group; below 0: not known.
struct PhaseTimes {
  double data = -1;
  double forward = -1;
  double backward = -1;
  double optimizer = -1;
};

class RankHistory {
 public:
  static constexpr size_t kMaxSpans = 4096;
  static constexpr size_t kMaxTraced = 100'000;
  static constexpr size_t kMaxNames = 32;  // of curves, and of operations

  explicit RankHistory(int64_t job_start, std::optional<StepRange> traced = {}) : start_(job_start), range_(traced) {}

  void take(const watch::NewEvents& found);
  /// The rank's counter, read at `now`.
  void note_samples(int64_t samples, int64_t now);

  const std::deque<Span>& spans() const { return spans_; }
  const std::map<std::string, Curve>& curves() const { return curves_; }
  const std::map<std::string, OperationTotals>& operations() const { return operations_; }
  uint64_t lost() const { return lost_; }
  /// The lowest step that was recorded; -1: none.
  int64_t first_step() const { return first_step_; }

  /// Over the last 10 s; nothing before two steps, or two readings of the counter.
  std::optional<double> steps_per_second(int64_t now) const;
  std::optional<double> samples_per_second(int64_t now) const;
  /// `open`: what has begun and not ended.
  Shares shares(int64_t now, const std::vector<Span>& open) const;

  /// Over the last seconds, or the last two steps. Not known before, nor when one of these had an evaluation or a save.
  PhaseTimes phase_times(int64_t now) const;

  /// The spans of the steps that are traced, and whether the last of these steps has ended.
  const std::vector<Span>& traced() const { return traced_; }
  bool trace_complete() const { return trace_complete_; }
  /// Spans of these steps that came after kMaxTraced others.
  uint64_t untraced() const { return untraced_; }

 private:
  struct Mark {
    int64_t when;
    int64_t count;
  };
  void take(const watch::EventRecord& event);
  void take_step(const watch::EventRecord& event);
  void take_value(const watch::EventRecord& event);
  void take_call(const watch::EventRecord& event);
  void keep(Span span);

  const int64_t start_;
  const std::optional<StepRange> range_;
  int64_t first_ = 0;  // the first event; 0: none yet
  int64_t first_step_ = -1;
  std::deque<Span> spans_;
  std::map<std::string, Curve> curves_;
  std::map<std::string, OperationTotals> operations_;
  std::deque<Mark> steps_;
  std::deque<Mark> samples_;
  std::vector<Span> traced_;
  bool trace_complete_ = false;
  uint64_t untraced_ = 0;
  uint64_t lost_ = 0;
};

}  // namespace trireme::launch
