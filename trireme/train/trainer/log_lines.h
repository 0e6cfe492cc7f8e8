// The lines of a training's log, in PaddleClas' form, and the times they tell.
//
//   [Train][Epoch 1/120][Iter: 0/20]lr(PiecewiseDecay): 0.10000000, top1: 0.01562, CELoss: 6.91342, loss: 6.91342,
//   batch_cost: 0.62000s, reader_cost: 0.03000, ips: 103.22581 samples/s, eta: 0:12:34, max_mem_…: 312 MB
//
// No torch here.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/train/results.h"
#include "trireme/train/stopwatch.h"

namespace trireme::trainer {

/// Where a run stands. Epochs count from 1, iterations from 0, as they are shown.
struct Place {
  int64_t epoch = 1;
  int64_t epochs = 1;
  int64_t iter = 0;
  int64_t iters = 1;
  int64_t first = 0;  ///< the iteration with which this run of the epoch began
};

/// Means over the batches since the last reset().
class Pace {
 public:
  /// A batch is there.
  void read() { reader_ += reading_ = watch_.lap(); }
  /// It is done with.
  void done(int64_t rows);
  void reset();

  double batch_cost() const { return batches_ == 0 ? 0 : batch_ / batches_; }  ///< reading included, in seconds
  double reader_cost() const { return batches_ == 0 ? 0 : reader_ / batches_; }
  double rows_per_second() const { return batch_ <= 0 ? 0 : rows_ / batch_; }

 private:
  train::Stopwatch watch_;
  double batch_ = 0, reader_ = 0, rows_ = 0, batches_ = 0;
  double reading_ = 0;  // of the batch at hand
};

struct RateText {
  std::string title;  ///< of the schedule
  double value = 0;
};

std::string train_line(const Place& place, const RateText& lr, const Results& results, const Pace& pace,
                       const std::string& memory);
/// "[Avg]", or "[Avg of iterations 12-47]" when a resumed run has not seen the others.
std::string train_average_line(const Place& place, const Results& results);
std::string eval_line(const Place& place, const Results& results, const Pace& pace);
std::string eval_average_line(const Place& place, const Results& results);
std::string best_line(int64_t epoch, double best);

/// "0:12:34", "2 days, 3:00:00": as Python shows a timedelta.
std::string eta_text(double seconds);
/// Peak memory of this process: ", max_mem_resident: 312 MB". Empty where it is not known.
std::string process_memory_text();

}  // namespace trireme::trainer
