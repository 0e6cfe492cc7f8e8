// How batches make steps of the optimizer: Global.update_freq of them one step, each with its share of the loss.
//
//   Turn turn = turn_of(iter, {.every = 4, .first = 0, .iters = 10});      // of 0 1 2 3 | 4 5 6 7 | 8 9
//
// What is left at the end of an epoch, or of the group in which a resumed run begins, makes a step of its own, whose
// shares are larger. No torch here.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trireme::trainer {

struct Turns {
  int64_t every = 1;  ///< batches of a step
  int64_t first = 0;  ///< the batch with which this run of the epoch began
  int64_t iters = 1;  ///< batches of the epoch
};

struct Turn {
  double share;  ///< of the batch's loss
  bool last;     ///< the step comes after it
};

inline Turn turn_of(int64_t iter, const Turns& turns) {
  const int64_t begin = iter - iter % turns.every;
  const int64_t first = std::max(begin, turns.first);
  const int64_t last = std::min(begin + turns.every, turns.iters) - 1;
  return {.share = 1.0 / static_cast<double>(last - first + 1), .last = iter == last};
}

}  // namespace trireme::trainer
