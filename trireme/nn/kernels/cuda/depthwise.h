// Depthwise convolution of channels-last images on a GPU: kernels of 3 or 5, strides of 1 or 2, padding (kernel - 1) / 2.
// Weights are [channels, kernel * kernel], float or of the images' type.
#pragma once

#include "trireme/nn/kernels/cuda/types.h"

namespace trireme::nn::kernels::cuda {

struct DepthwiseShape {
  int64_t images = 0;
  int64_t channels = 0;           ///< a multiple of vector_width(type)
  int64_t height = 0, width = 0;  ///< of the input
  int kernel = 3;
  int stride = 1;
  Type type = Type::float32;
  Type weight_type = Type::float32;  ///< or `type`

  constexpr int64_t out_height() const { return (height - 1) / stride + 1; }
  constexpr int64_t out_width() const { return (width - 1) / stride + 1; }
};

/// Whether there are few enough pixels to be counted in 31 bits.
bool depthwise_fits(const DepthwiseShape& shape);

void depthwise_forward(const DepthwiseShape& shape, const void* x, const void* weight, void* y, Stream stream);
/// The gradient of x.
void depthwise_input_gradient(const DepthwiseShape& shape, const void* dy, const void* weight, void* dx, Stream stream);

/// Numbers of floats that the gradient of the weight needs as scratch memory.
int64_t depthwise_scratch(const DepthwiseShape& shape);
void depthwise_weight_gradient(const DepthwiseShape& shape, const void* dy, const void* x, void* d_weight,
                               float* scratch, Stream stream);

}  // namespace trireme::nn::kernels::cuda
