// What the fused layers ask of a batch normalisation layer, and do to it.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include <cstdint>

#include "trireme/nn/kernels/rows.h"
#include "trireme/nn/layers.h"

namespace trireme::nn::fused {

/// Whether TRIREME_FUSED=0: layers run one by one.
bool is_switched_off();

/// Whether a fused layer may take this input: float on the CPU, channels last, with gradients, outside of autocast and of
/// tracing, and unless TRIREME_FUSED=0.
bool can_fuse_input(const torch::Tensor& x);

/// Whether this layer trains in the way that the kernels know: with running statistics and an activation of theirs.
bool can_fuse_norm(const torch::nn::BatchNorm2dImpl& norm, Activation activation);

kernels::Act act_of(Activation activation);

/// From [3, channels]: mean, 1 / deviation, variance over `count` numbers a channel.
void update_running_statistics(const torch::nn::BatchNorm2dImpl& norm, const torch::Tensor& statistics, double count);

/// Throws UsageError when backward is called with create_graph.
void refuse_second_derivative();

}  // namespace trireme::nn::fused
