// What Step and Model require of optimizers, batches and losses. Internal to this folder.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "trireme/data/sample.h"

namespace trireme::train {

/// UsageError, which begins with `who`, when the optimizer has tensors that are not parameters of the module.
void require_own_parameters(const char* who, const torch::optim::Optimizer& optimizer, const torch::nn::Module& module);

/// The batch itself. UsageError when it has more than an input and a label: Model would train without the rest.
const data::Batch& input_and_label(const data::Batch& batch);

/// The loss itself. UsageError when it is not a tensor of one element.
const torch::Tensor& one_number(const torch::Tensor& loss);

}  // namespace trireme::train
