// The loops of evaluate() and predict(), which fit() uses too. Belongs to Model.
#pragma once

#include <optional>

#include "trireme/train/callback.h"
#include "trireme/train/fit_options.h"
#include "trireme/train/learner.h"

namespace trireme {

struct EvaluationOptions {
  int num_workers = 1;
  std::optional<int64_t> limit = {};  ///< batches of each rank
};

/// Fills in the run's mode, steps, samples and results.
Results run_evaluation(Learner& learner, const Samples& samples, const Callbacks& callbacks, Run& run,
                       const EvaluationOptions& options);
torch::Tensor run_prediction(Learner& learner, const Samples& samples, const Callbacks& callbacks, Run& run,
                             const EvaluationOptions& options);

}  // namespace trireme
