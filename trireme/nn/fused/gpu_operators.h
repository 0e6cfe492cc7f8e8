// The operators of libtrireme_cuda.so, which knows the kernels (nn/kernels/cuda/). Called below autograd. A channels-last
// image of float, half or bfloat16; parameters and sums are float.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

namespace trireme::nn::fused::gpu {

/// Whether the kernels are there and may take this image; false with TRIREME_FUSED=0.
bool can_take(const at::Tensor& x);
/// Likewise, whatever its memory order.
bool can_take_any_order(const at::Tensor& x);

struct NormCall {
  at::Tensor x, weight, bias;
  std::optional<at::Tensor> residual;
  std::optional<at::Tensor> running_mean, running_var, batches;
  double epsilon = 0, momentum = 0;
  int64_t act = 0;
};
/// y and [4, channels]: mean, 1 / deviation, scale, shift.
std::tuple<at::Tensor, at::Tensor> norm_act(const NormCall& call);

/// What backward reads beside x: nothing, y, or what was added. As kernels::cuda::Behind.
enum class Behind : int64_t { nothing, output, residual };
struct NormGradientCall {
  at::Tensor dy, x;
  std::optional<at::Tensor> more_dy;
  Behind behind = Behind::nothing;
  std::optional<at::Tensor> beside;
  at::Tensor weight, statistics;
  int64_t act = 0;
};
/// dx, the gradients of weight and bias, and, where something is behind, the gradient in front of the activation.
std::vector<at::Tensor> norm_act_backward(const NormGradientCall& call);

at::Tensor depthwise(const at::Tensor& x, const at::Tensor& weight, int64_t stride);
/// The gradient of the weight, and that of x where it is wanted.
std::vector<at::Tensor> depthwise_backward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                           int64_t stride, bool with_input);

struct Window {
  int64_t kernel, stride, padding;
};
/// y, and the place of each maximum in its window.
std::tuple<at::Tensor, at::Tensor> max_pool(const at::Tensor& x, const Window& window);
at::Tensor max_pool_backward(const at::Tensor& dy, const std::optional<at::Tensor>& more_dy, const at::Tensor& places,
                             at::IntArrayRef size, const Window& window);

/// Each square of 2x2 pixels as one pixel of kSquareChannels, with squares of zeros around the picture.
inline constexpr int64_t kSquareChannels = 16;
at::Tensor squares(const at::Tensor& x, int64_t before, int64_t after, at::ScalarType type);

/// [images, channels]: the sum of x (times y, if there is one) over the pixels, times `factor`.
at::Tensor image_sums(const at::Tensor& x, const std::optional<at::Tensor>& y, double factor);
/// x * gates (+ constant), both [images, channels].
at::Tensor gate(const at::Tensor& x, const at::Tensor& gates, const std::optional<at::Tensor>& constant);

}  // namespace trireme::nn::fused::gpu
