// Batch normalisation, activation and the addition before it in one pass forward and two back, where the layers one by
// one take three to seven.
#pragma once

#include <torch/types.h>

#include <memory>

#include "trireme/nn/batch_norm_state.h"
#include "trireme/nn/fused/norm_layer.h"

namespace trireme::nn::fused {

struct NormInput {
  torch::Tensor x;  ///< as can_fuse_input() asks
  torch::Tensor weight, bias;
  torch::Tensor residual = {};  ///< may be undefined
  double epsilon = 0;
  Activation activation = Activation::none;
};
struct Normalised {
  torch::Tensor y;
  torch::Tensor statistics;  ///< [3, channels]: mean, 1 / deviation, variance
  double count = 0;          ///< numbers a channel, on all ranks
};
/// activation(normalised x * weight + bias + residual), by the statistics of this batch and of the peers', if there are
/// any. Gradients flow once (a second derivative is a UsageError).
Normalised normalise_act(const NormInput& input, const std::shared_ptr<const NormPeers>& peers);

/// The same as a layer that trains: updates the running statistics. `residual` may be undefined. Only when
/// can_fuse() says so.
torch::Tensor batch_norm_act(const torch::nn::BatchNorm2dImpl& norm, const torch::Tensor& x, Activation activation,
                             const torch::Tensor& residual);

/// activation(norm(x) + residual) in any mode, by batch_norm_act() where it does what the layers one by one do, otherwise
/// by them: what they refuse is refused with their words. `residual` may be undefined.
torch::Tensor norm_add_act(torch::nn::BatchNorm2dImpl& norm, const torch::Tensor& x, Activation activation,
                           const torch::Tensor& residual);
/// Whether it is fused.
bool can_fuse(const torch::nn::BatchNorm2dImpl& norm, const torch::Tensor& x, Activation activation,
              const torch::Tensor& residual);

}  // namespace trireme::nn::fused
