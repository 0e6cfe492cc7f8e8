// The loops of evaluate() and predict(), which fit() uses too. Belongs to Model.
#pragma once

#include <optional>

#include "trireme/train/callback_list.h"
#include "trireme/train/fit_options.h"
#include "trireme/train/learner.h"

namespace trireme::train {

struct EvaluationOptions {
  int num_workers = 1;
  std::optional<int64_t> limit = {};  ///< batches of each rank
  bool one_output = false;            ///< UsageError when the network has others
};

/// Fills in the run's mode, steps, samples and results.
Results run_evaluation(Learner& learner, const Samples& samples, const CallbackList& callbacks, Run& run,
                       const EvaluationOptions& options);
/// One tensor for each output.
Tensors run_prediction(Learner& learner, const Samples& samples, const CallbackList& callbacks, Run& run,
                       const EvaluationOptions& options);

/// UsageError that names predict_outputs().
void require_one_output(const Tensors& outputs);

}  // namespace trireme::train
