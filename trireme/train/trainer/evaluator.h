// One pass over DataLoader.Eval. Every picture counts once, on any number of ranks: batches are dealt out without
// padding, so the numbers are those of one process. One that cannot be read is left out, and the log says so.
//
//   Evaluator evaluator(config, ranks);
//   Results results = evaluator.run(net, amp, {.epoch = 3});      // CELoss, loss, top1, top5
//
// Called by every rank. Logs a line every print_batch_step batches, and the averages.
#pragma once

#include <functional>
#include <string>

#include "trireme/config/train_config.h"
#include "trireme/train/amp_options.h"
#include "trireme/train/eval_batches.h"
#include "trireme/train/trainer/log_lines.h"
#include "trireme/train/trainer/make_metrics.h"

namespace trireme::trainer {

struct EvaluationOptions {
  int64_t epoch = 0;                     ///< that is done, for the log
  bool averaged = false;                 ///< the model holds averaged weights: the log marks the lines by [EMA]
  std::function<bool()> signalled = {};  ///< whether a signal has come, which the log then says once
};

class Evaluator {
 public:
  /// UsageError with file and line when there is nothing to evaluate on.
  Evaluator(const config::TrainConfig& config, const train::Ranks& ranks);

  /// Always runs to its end.
  Results run(const RoleModels& net, const AmpOptions& amp, const EvaluationOptions& options = {});

 private:
  void measure(const RoleModels& net, const AmpOptions& amp, const data::Batch& batch, int64_t iter);

  const train::Ranks& ranks_;
  int64_t print_step_;
  train::EvalBatches batches_;
  Losses losses_;
  RoleMetrics metrics_;
  train::Meter meter_;
};

}  // namespace trireme::trainer
