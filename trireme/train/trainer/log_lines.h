// The lines of a training's log, in PaddleClas' form.
//
//   [Train][Epoch 1/120][Iter: 0/20]lr(PiecewiseDecay): 0.10000000, top1: 0.01562, CELoss: 6.91342, loss: 6.91342,
//   batch_cost: 0.62000s, reader_cost: 0.03000, ips: 103.22581 samples/s, eta: 0:12:34, max_mem_…: 312 MB
//
// The epochs of a training are shown from 1 on, iterations from 0; an evaluation shows the epochs that are done.
// No torch here.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/train/pace.h"
#include "trireme/train/place.h"
#include "trireme/train/results.h"

namespace trireme::trainer {

using train::Pace;
using train::Place;

struct RateText {
  std::string title;  ///< of the schedule
  double value = 0;
};

std::string train_line(const Place& place, const RateText& lr, const Results& results, const Pace& pace,
                       const std::string& memory);
/// "[Avg]", or "[Avg of iterations 12-47]" when a resumed run began with the iteration `first`.
std::string train_average_line(const Place& place, int64_t first, const Results& results);
/// `mark`: behind the epoch, "[EMA]" when the averaged weights are evaluated.
std::string eval_line(const Place& place, const std::string& mark, const Results& results, const Pace& pace);
std::string eval_average_line(const Place& place, const std::string& mark, const Results& results);
std::string best_line(int64_t epoch, double best);

/// "0:12:34", "2 days, 3:00:00": as Python shows a timedelta.
std::string eta_text(double seconds);
/// Peak memory of this process: ", max_mem_resident: 312 MB". Empty where it is not known.
std::string process_memory_text();

}  // namespace trireme::trainer
