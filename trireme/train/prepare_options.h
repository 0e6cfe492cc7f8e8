// What a net is trained with.
#pragma once

#include <optional>

#include "trireme/parallel/sharded/shard_sync.h"
#include "trireme/train/amp_options.h"
#include "trireme/train/loss.h"
#include "trireme/train/metrics.h"
#include "trireme/train/optimizer_source.h"

namespace trireme {

struct PrepareOptions {
  train::OptimizerSource optimizer = {};  ///< none: no training
  Loss loss = {};                         ///< none: no training, and evaluations without a loss
  train::Metrics metrics = {};
  AmpOptions amp = {};
  std::optional<double> clip_norm = {};  ///< the largest norm of all gradients together
  std::optional<double> ema_decay = {};  ///< keep an average of the weights, which evaluate and predict then use
  bool graph = false;                    ///< on a GPU: steps of one shape as a CUDA graph (step.h)
  /// Networks that take images compute in the memory order that is fastest for convolutions (step.h). Not with `shard`.
  bool channels_last = true;
  /// Splits the training over the ranks, as ShardedDataParallel does: ShardedOptions{.shard = Shard::gradients}. The
  /// optimizer must be given as a function.
  std::optional<ShardedOptions> shard = {};
};

}  // namespace trireme
