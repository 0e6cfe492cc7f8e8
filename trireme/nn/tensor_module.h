// A module that makes one tensor of one tensor, so that modules of several kinds fit one list. torch::nn::Module itself has
// no forward().
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

namespace trireme::nn {

class TensorModule : public torch::nn::Module {
 public:
  virtual torch::Tensor forward(const torch::Tensor& x) = 0;
};

}  // namespace trireme::nn
