// Max pooling of channels-last images on a GPU; where each maximum stood is kept in a byte.
#pragma once

#include "trireme/nn/kernels/cuda/types.h"

namespace trireme::nn::kernels::cuda {

struct PoolShape {
  int64_t images = 0;
  int64_t channels = 0;           ///< a multiple of vector_width(type)
  int64_t height = 0, width = 0;  ///< of the input
  int kernel = 3;                 ///< 15 at most
  int stride = 2;
  int padding = 1;  ///< less than the kernel
  Type type = Type::float32;

  constexpr int64_t out_height() const { return (height + 2 * padding - kernel) / stride + 1; }
  constexpr int64_t out_width() const { return (width + 2 * padding - kernel) / stride + 1; }
};

/// `places` has y's shape: row * kernel + column in the window. NaN is the largest number.
void max_pool_forward(const PoolShape& shape, const void* x, void* y, uint8_t* places, Stream stream);
/// `more_dy` is added to dy, or null.
void max_pool_backward(const PoolShape& shape, const void* dy, const void* more_dy, const uint8_t* places, void* dx,
                       Stream stream);

}  // namespace trireme::nn::kernels::cuda
