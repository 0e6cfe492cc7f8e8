#include "trireme/nn/activation.h"

#include <torch/torch.h>

namespace trireme::nn {

torch::Tensor activate(const torch::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return torch::relu(x);
    case Activation::relu6:
      return torch::clamp(x, 0, 6);
    case Activation::hardswish:
      return torch::hardswish(x);
    case Activation::silu:
      return torch::silu(x);
    case Activation::gelu:
      return torch::gelu(x);
    case Activation::sigmoid:
      return torch::sigmoid(x);
    case Activation::hardsigmoid:
      return torch::hardsigmoid(x);
    case Activation::hardsigmoid_fifth:
      return torch::clamp(x * 0.2 + 0.5, 0, 1);
  }
  TORCH_CHECK(false, "activation ", static_cast<int>(activation), " does not exist");
}

torch::Tensor activate_in_place(torch::Tensor x, Activation activation) {
  // The others' gradients need x, of which an in-place call would have to keep a copy.
  return activation == Activation::relu ? x.relu_() : activate(x, activation);
}

}  // namespace trireme::nn
