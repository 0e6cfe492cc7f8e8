// What Step and Model share: the forward pass, and what they require of optimizers and losses. Internal to this folder.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <vector>

#include "trireme/train/amp_options.h"
#include "trireme/train/network.h"

namespace trireme::train {

/// UsageError, which begins with `who`, when the optimizer has tensors that are not parameters of the module.
void require_own_parameters(const char* who, const torch::optim::Optimizer& optimizer, const torch::nn::Module& module);

/// Whether ShardedDataParallel has split it.
bool is_split(const torch::nn::Module& module);

/// What an optimizer steps: the module's parameters, and of those that ShardedDataParallel has split, this rank's pieces.
std::vector<torch::Tensor> stepped_parameters(const torch::nn::Module& module);

/// The loss itself. UsageError when it is not a tensor of one element.
const torch::Tensor& one_number(const torch::Tensor& loss);

/// The forward pass as Step and Model run it: inputs on the device, autocast for O1 and O2, outputs in float32 (or
/// double). UsageError when there is no output.
Tensors forward_pass(const Forward& forward, torch::Device device, const AmpOptions& amp, const Tensors& inputs);

Tensors on_device(const Tensors& tensors, torch::Device device);

}  // namespace trireme::train
