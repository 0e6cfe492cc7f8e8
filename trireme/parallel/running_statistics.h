// Batch normalisation in a forward pass that is made a second time (checkpoint()): the running statistics have had
// their update, and must not get it twice.
#pragma once

namespace trireme {

/// While it lives, batch normalisation on this thread leaves its running mean and variance as they are. The layer's own
/// counter, num_batches_tracked, still counts.
class RunningStatisticsStay {
 public:
  RunningStatisticsStay();
  ~RunningStatisticsStay();
  RunningStatisticsStay(const RunningStatisticsStay&) = delete;
  RunningStatisticsStay& operator=(const RunningStatisticsStay&) = delete;

 private:
  bool before_;
};

}  // namespace trireme
