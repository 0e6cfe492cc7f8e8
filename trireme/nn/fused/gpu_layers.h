// Layers that train faster on a GPU by our own kernels than by libtorch's: each runs libtorch's own where the kernels do
// not fit (another type or memory order, no channels-last image, evaluation where they are not faster, TRIREME_FUSED=0).
// Images are channels last; gradients flow once (a second derivative is a UsageError).
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/types.h>

#include <optional>

#include "trireme/nn/layers.h"

namespace trireme::nn::fused::gpu {

/// activation(norm(x) + residual) of a layer that trains, or nothing where it cannot be fused. `residual` may be
/// undefined.
std::optional<torch::Tensor> norm_add_act(const torch::nn::BatchNorm2dImpl& norm, const torch::Tensor& x,
                                          Activation activation, const torch::Tensor& residual);

/// The same result, given out to two readers: the gradients that they send back are added where they are read, instead
/// of in a pass of its own. (Where nothing is fused, both are one tensor.)
struct Twice {
  torch::Tensor first, second;
};
std::optional<Twice> norm_add_act_twice(const torch::nn::BatchNorm2dImpl& norm, const torch::Tensor& x,
                                        Activation activation, const torch::Tensor& residual);

/// The convolution: depthwise ones of 3x3 and 5x5, and the first of a network, by our own kernels.
torch::Tensor convolve(torch::nn::Conv2dImpl& conv, const torch::Tensor& x);

/// As torch::max_pool2d.
torch::Tensor max_pool(const torch::Tensor& x, int64_t kernel, int64_t stride, int64_t padding);
Twice max_pool_twice(const torch::Tensor& x, int64_t kernel, int64_t stride, int64_t padding);

/// The means of all channels, [images, channels], and x times a gate of that shape. Both of one squeeze-and-excite
/// layer: their gradients are made together.
class SqueezedImage {
 public:
  /// Nothing where it cannot be fused.
  static std::optional<SqueezedImage> of(const torch::Tensor& x);
  const torch::Tensor& means() const { return means_; }
  torch::Tensor times(const torch::Tensor& gate) const;

 private:
  SqueezedImage() = default;
  torch::Tensor x_, means_;
  c10::intrusive_ptr<c10::intrusive_ptr_target> memo_;  // what the two gradients share
};

}  // namespace trireme::nn::fused::gpu
