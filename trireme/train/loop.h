// The one loop of a training: epochs of batches, until all are done or the ranks agree to end early. Model::fit and
// `trireme train` both run it; what they do at its points is a Training:
//
//   begin_epoch  { train_batch  end_batch } …  end_epoch
//
//   Loop loop(training, place, {step, ranks, Meter({"loss"}, metrics)});
//   loop.catch_signals({SIGINT, SIGTERM});
//   loop.run();
//   if (loop.signal() != 0) …                                  // ended early
//
// The last batch of an epoch ends its group of accumulated batches. An early end comes between two steps of the
// optimizer. Every rank makes the same calls; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trireme/core/preemption.h"
#include "trireme/train/meter.h"
#include "trireme/train/place.h"
#include "trireme/train/ranks.h"
#include "trireme/train/step.h"

namespace trireme::train {

class Training {
 public:
  virtual ~Training() = default;

  /// Sets step and steps of the place, and returns the step before which this epoch ends.
  virtual int64_t begin_epoch() = 0;
  /// Reads the next batch and takes a step with it.
  virtual Meter::Batch train_batch(const BatchOptions& options) = 0;
  /// Called after each batch: log here, and call agree_to_stop(). Place::step is still this batch's.
  virtual void end_batch() = 0;
  /// Called after the last batch: evaluate and save here. Place::step is the number of batches done, fewer than
  /// Place::steps after an early end.
  virtual void end_epoch() = 0;
  /// Throws the error for a loss that is not finite.
  [[noreturn]] virtual void refuse(const BadLoss& bad) const = 0;
};

/// What a rank requests of all ranks.
struct LoopRequest {
  bool stop = false;
  bool save = false;
};

class Loop {
 public:
  struct Parts {
    Step& step;
    const Ranks& ranks;
    Meter meter;
  };

  /// The place is the caller's.
  Loop(Training& training, Place& place, Parts parts);

  /// From now on these signals end the training, not the process. A second call changes nothing.
  void catch_signals(const std::vector<int>& signals);

  /// All epochs from the place on. After a signal the place stays in the epoch that it ended.
  void run();

  /// Of this epoch so far, over all ranks. A loss that is not a finite number is refused here.
  const Results& results();
  /// Whether the batch at hand is the last of its epoch.
  bool is_last_batch() const { return place_.step + 1 == end_; }

  /// Whether the training ends early, the same on every rank and for ever after: a signal has come to any of them, or
  /// any of them requests it. saving() then says whether any requests a checkpoint.
  bool agree_to_stop(const LoopRequest& request = {});
  bool stopping() const { return stopping_; }
  bool saving() const { return saving_; }
  /// The signal that the ranks agreed on; 0: none.
  int signal() const { return signal_; }
  /// Whether this rank has received a signal; other ranks may not know.
  bool signalled() const { return notice_ && notice_->received(); }
  /// A signal that was caught now does what it does without this loop, also one that came after the last agreement.
  void raise_signal();

 private:
  void train_epoch();
  void announce_goal() const;

  Training& training_;
  Place& place_;
  Parts parts_;
  std::optional<PreemptionNotice> notice_;
  int64_t end_ = 0;                 // the step before which the epoch ends
  std::optional<Results> results_;  // empty: batches were added since
  bool stopping_ = false;
  bool saving_ = false;
  int signal_ = 0;
};

/// "Ctrl-C (SIGINT)"
const char* signal_name(int signal);

}  // namespace trireme::train
