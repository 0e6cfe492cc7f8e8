// What squeeze-and-excitation does to channels-last images on a GPU: the means of all channels of each image, and each
// channel times a factor of its own. Means and factors are [images, channels] in float.
#pragma once

#include "trireme/nn/kernels/cuda/types.h"

namespace trireme::nn::kernels::cuda {

struct GateShape {
  int64_t images = 0;
  int64_t pixels = 0;
  int64_t channels = 0;  ///< a multiple of vector_width(type)
  Type type = Type::float32;
};

/// means = the sum of x over the pixels of an image, or of x * y where y is not null, times `factor`.
void image_sums(const GateShape& shape, const void* x, const void* y, float factor, float* sums, Stream stream);

/// y = x * gate + constant. `constant` may be null.
void gate(const GateShape& shape, const void* x, const float* gate, const float* constant, void* y, Stream stream);

}  // namespace trireme::nn::kernels::cuda
