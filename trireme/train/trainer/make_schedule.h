// Optimizer.lr of a configuration -> a learning rate for each step.
//
// PaddleClas' rates belong to the global batch of its authors: 4 ranks (8 for AdamW) of the file's batch_size. Another
// global batch wants a rate that is larger or smaller in proportion (arXiv 1706.02677); that is said, and done with
// Optimizer.lr.auto_scale.
//
//   GlobalBatch batch{.assumed = 256, .actual = 128};
//   Schedule lr = make_schedule(config.optimizer.lr, {.epochs = 120, .steps_per_epoch = 5004, .batch = batch});
//
// No torch here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/config/optimizer_config.h"
#include "trireme/optim/schedules.h"

namespace trireme::trainer {

struct GlobalBatch {
  int64_t assumed = 0;  ///< 0: not known
  int64_t actual = 0;
  double ratio() const { return assumed == 0 ? 1 : static_cast<double>(actual) / static_cast<double>(assumed); }
};

/// How many ranks PaddleClas' authors used.
int64_t assumed_ranks(const std::string& optimizer);

struct Length {
  int64_t epochs = 0;
  int64_t steps_per_epoch = 0;  ///< of the optimizer
  GlobalBatch batch = {};
};

/// Throws UsageError with file and line for values that cannot be.
optim::Schedule make_schedule(const config::LearningRate& lr, const Length& length);

/// What to tell of a global batch that is not the assumed one; nothing when it is, or when the rate came by -o.
std::optional<std::string> batch_note(const config::LearningRate& lr, const GlobalBatch& batch);

/// As PaddleClas names it in its log: "PiecewiseDecay", "LinearWarmup".
std::string schedule_title(const config::LearningRate& lr);

}  // namespace trireme::trainer
