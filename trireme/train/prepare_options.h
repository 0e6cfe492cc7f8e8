// What a net is trained with.
#pragma once

#include <torch/types.h>

#include <functional>

#include "trireme/train/amp_options.h"
#include "trireme/train/meter.h"
#include "trireme/train/optimizer_source.h"

namespace trireme {

/// The average over the samples of a batch, as a tensor of one element: torch::nn::CrossEntropyLoss(), or any function.
using Loss = std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& label)>;

struct PrepareOptions {
  OptimizerSource optimizer = {};  ///< none: no training
  Loss loss = {};                  ///< none: no training, and evaluations without a loss
  Metrics metrics = {};
  AmpOptions amp = {};
};

}  // namespace trireme
