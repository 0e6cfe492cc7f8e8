// Where a training stands, or an evaluation. No torch here.
#pragma once

#include <cstdint>

namespace trireme::train {

struct Place {
  int64_t epoch = 0;  ///< from 0; an evaluation within a fit has the fit's
  int64_t epochs = 1;
  int64_t step = 0;        ///< the batch of this epoch, from 0
  int64_t steps = 0;       ///< batches of an epoch on this rank
  int64_t iterations = 0;  ///< with which the training ends, even within an epoch; 0: after the epochs
  int64_t iteration = 0;   ///< batches since this process began to train; a fit counts those before its resume too
};

}  // namespace trireme::train
