// Activations by name, so that a block can take its own from a table row.
//
//   y = nn::activate(x, nn::Activation::hardswish);
#pragma once

#include <torch/types.h>

namespace trireme::nn {

enum class Activation {
  none,
  relu,
  relu6,
  hardswish,
  silu,
  gelu,
  sigmoid,
  hardsigmoid,        ///< clamp(x / 6 + 1/2, 0, 1)
  hardsigmoid_fifth,  ///< clamp(x / 5 + 1/2, 0, 1), the one in PaddleClas' MobileNetV3
};

torch::Tensor activate(const torch::Tensor& x, Activation activation);

/// Likewise, but may overwrite `x`: for a tensor of the caller's own whose values no gradient needs.
torch::Tensor activate_in_place(torch::Tensor x, Activation activation);

}  // namespace trireme::nn
