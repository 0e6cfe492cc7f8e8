// Batch normalisation with the activation and the addition around it, for channels-last images on a GPU: two passes over
// the image forward, two back, each near the bandwidth of copying. The second pass of each pair runs backwards through
// the image, so that it begins with what the first has left in the cache.
//
//   z = (x - mean) / deviation * weight + bias (+ residual),   y = activation(z)
//
// Sums are taken around the first row's numbers, so that a mean that is large beside the deviation costs no digits; the
// blocks' sums are added in a fixed order, in double: the same input gives the same bits.
#pragma once

#include "trireme/nn/kernels/cuda/types.h"
#include "trireme/nn/kernels/rows.h"

namespace trireme::nn::kernels::cuda {

/// What backward needs to know of the residual: whether the activation let a number through (of y, where that says it),
/// or the residual itself, from which z is made again.
enum class Behind : uint8_t { nothing, output, residual };

struct NormShape {
  int64_t rows = 0;
  int64_t channels = 0;  ///< a multiple of vector_width(type)
  Type type = Type::float32;
  Act act = Act::none;
};

/// [4, channels]: mean, 1 / deviation, scale and shift.
inline constexpr int64_t kStatistics = 4;

/// Numbers of floats that the two directions need as scratch memory.
int64_t norm_scratch(const NormShape& shape);

struct NormForward {
  const void* x = nullptr;
  const void* residual = nullptr;  ///< or null
  const float* weight = nullptr;
  const float* bias = nullptr;
  float* running_mean = nullptr;  ///< null: not updated
  float* running_var = nullptr;
  int64_t* batches = nullptr;  ///< counts the forward passes, or null
  double epsilon = 0;
  double momentum = 0;
  void* y = nullptr;
  float* statistics = nullptr;
  float* scratch = nullptr;
};
void norm_act_forward(const NormShape& shape, const NormForward& call, Stream stream);

struct NormBackward {
  const void* dy = nullptr;
  const void* more_dy = nullptr;  ///< is added to dy, or null
  const void* x = nullptr;
  Behind behind = Behind::nothing;
  const void* beside = nullptr;  ///< y or the residual, as `behind` says
  const float* statistics = nullptr;
  void* dx = nullptr;
  void* d_residual = nullptr;  ///< with `behind`: the gradient in front of the activation
  float* d_weight = nullptr;
  float* d_bias = nullptr;
  float* scratch = nullptr;
};
void norm_act_backward(const NormShape& shape, const NormBackward& call, Stream stream);

}  // namespace trireme::nn::kernels::cuda
