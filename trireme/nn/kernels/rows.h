// Batch normalisation and what surrounds it, over rows of channels: the memory of a channels-last image, a row for each
// pixel. Plain functions on one thread and on ranges, with SIMD chosen at run time (dispatch.h); nn/fused/ makes layers
// of them.
//
//   z = x * scale + shift (+ residual),   y = activation(z) (* gate)
//
// All sums are taken in double over blocks of rows that are summed in float, so that the result depends on the rows
// alone, not on the vectors' width by more than a rounding.
#pragma once

#include <cstdint>

namespace trireme::nn::kernels {

enum class Act : uint8_t { none, relu, relu6, hardswish, silu };

/// Rows that lie one after the other, `channels` numbers each.
struct Rows {
  int64_t rows = 0;
  int64_t channels = 0;
};

/// What normalisation has come to: one number for each channel.
struct Affine {
  const float* scale = nullptr;  ///< weight / sqrt(variance + epsilon)
  const float* shift = nullptr;  ///< bias - mean * scale
  Act act = Act::none;
};

/// Adds each channel's sum of x - pivot and of its square. A pivot near the mean keeps the digits of a variance that is
/// small beside it.
void add_sums(const float* x, Rows shape, const float* pivot, double* sum, double* squares);

/// y = activation(x * scale + shift + residual) * gate. `residual` has x's shape, `gate` one number a channel; each may
/// be null. y may be x. With `stream` y goes past the caches: for tensors that nobody reads soon.
struct Normalise {
  Affine affine;
  const float* residual = nullptr;
  const float* gate = nullptr;
  bool stream = false;
};
void normalise(const float* x, Rows shape, const Normalise& how, float* y);

/// Adds each channel's sum of activation(x * scale + shift).
void add_activated_sums(const float* x, Rows shape, const Affine& affine, float* sum);

/// Adds each channel's sum of dy * activation(x * scale + shift): the gradient of a gate behind it.
void add_gate_gradient(const float* dy, const float* x, Rows shape, const Affine& affine, float* sum);

/// The gradient in front of the activation: g = (dy * gate + pooled) * activation'(x * scale + shift + residual).
struct BackwardSums {
  Affine affine;
  const float* mean = nullptr;
  const float* residual = nullptr;
  const float* gate = nullptr;    ///< one number a channel, or null
  const float* pooled = nullptr;  ///< likewise: what the gate's own gradient adds to every pixel
};
/// Writes g to `g` (may be dy; null: nowhere) and adds the sums of g and of g * (x - mean).
void backward_sums(const float* dy, const float* x, Rows shape, const BackwardSums& how, float* g, double* sum,
                   double* centred);

/// dx = a * g + b * x + c, one a, b and c for each channel: what the gradient of normalisation comes to when its sums
/// are known.
struct BackwardInput {
  const float* a = nullptr;
  const float* b = nullptr;
  const float* c = nullptr;
  bool stream = false;
};
void backward_input(const float* g, const float* x, Rows shape, const BackwardInput& how, float* dx);

/// Likewise with g made on the way, as in backward_sums() without gate and pooled.
void backward_input_through(const float* dy, const float* x, Rows shape, const BackwardInput& how,
                            const BackwardSums& through, float* dx);

/// Copies past the caches: for memory that nobody reads soon, which then need not be read before it is written.
void copy_past_caches(const float* from, int64_t count, float* to);

}  // namespace trireme::nn::kernels
