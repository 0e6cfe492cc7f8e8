// What a net is trained with.
#pragma once

#include "trireme/train/amp_options.h"
#include "trireme/train/meter.h"
#include "trireme/train/optimizer_source.h"
#include "trireme/train/step.h"

namespace trireme {

struct PrepareOptions {
  OptimizerSource optimizer = {};  ///< none: no training
  Loss loss = {};                  ///< none: no training, and evaluations without a loss
  Metrics metrics = {};
  AmpOptions amp = {};
  std::optional<double> clip_norm = {};  ///< the largest norm of all gradients together
  std::optional<double> ema_decay = {};  ///< keep an average of the weights, which evaluate and predict then use
};

}  // namespace trireme
