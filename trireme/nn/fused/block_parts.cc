#include "trireme/nn/fused/block_parts.h"

#include <ATen/ops/empty.h>

#include <cstring>

namespace trireme::nn::fused {

at::Tensor image_batch(int64_t images, int64_t channels, int64_t height, int64_t width, const at::Tensor& like) {
  return at::empty({images, channels, height, width}, like.options().requires_grad(false),
                   at::MemoryFormat::ChannelsLast);
}

at::Tensor matrix(const at::Tensor& pointwise) {
  return pointwise.view({pointwise.size(0), pointwise.size(1)});
}

at::Tensor taps(const at::Tensor& weight) {
  return weight.view({weight.size(0), -1}).t().contiguous();
}

void fill_frame(const float* image, const kernels::Affine& affine, const kernels::Depthwise& shape, float* frame) {
  const int64_t line = shape.frame_width() * shape.channels;
  const int64_t side = shape.pad() * shape.channels;
  const auto zero = [](float* at, int64_t floats) { std::memset(at, 0, static_cast<size_t>(floats) * sizeof(float)); };
  zero(frame, shape.pad() * line);
  zero(frame + (shape.frame_height() - shape.pad()) * line, shape.pad() * line);
  for (int64_t y = 0; y < shape.height; ++y) {
    float* inside = frame + shape.inside(y, 0);
    zero(inside - side, side);
    kernels::normalise(image + y * shape.width * shape.channels, {shape.width, shape.channels}, {.affine = affine},
                       inside);
    zero(inside + shape.width * shape.channels, side);
  }
}

}  // namespace trireme::nn::fused
