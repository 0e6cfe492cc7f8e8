// Batch normalisation, activation and the addition before it in one pass forward and two back, where the layers one by
// one take three to seven.
#pragma once

#include <torch/types.h>

#include "trireme/nn/fused/norm_layer.h"

namespace trireme::nn::fused {

/// activation(norm(x) + residual), trained: updates the running statistics. `residual` may be undefined. Only when
/// can_fuse_input(x) and can_fuse_norm() say so; gradients flow once (a second derivative is a UsageError).
torch::Tensor batch_norm_act(const torch::nn::BatchNorm2d& norm, const torch::Tensor& x, Activation activation,
                             const torch::Tensor& residual);

}  // namespace trireme::nn::fused
