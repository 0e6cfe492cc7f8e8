// Squeeze-and-excitation (Hu et al., 2018): each channel times a factor in [0, 1] that is computed from the means of
// all channels, through a narrow layer.
//
//   nn::SqueezeExcite se({.channels = 64, .squeeze = 16});
//   y = se->forward(x);                                              // parameters fc1.weight, fc1.bias, fc2.…
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <string>

#include "trireme/nn/activation.h"

namespace trireme::nn {

struct SqueezeExciteOptions {
  int64_t channels = 0;
  int64_t squeeze = 0;  ///< width of the narrow layer; a quarter of the channels as a rule
  Activation gate = Activation::hardsigmoid;
  std::string squeeze_name = "fc1";
  std::string excite_name = "fc2";
};

class SqueezeExciteImpl : public torch::nn::Module {
 public:
  /// UsageError unless both widths are 1 or more.
  explicit SqueezeExciteImpl(const SqueezeExciteOptions& options);
  torch::Tensor forward(const torch::Tensor& x);

 private:
  torch::nn::Conv2d squeeze_;
  torch::nn::Conv2d excite_;
  Activation gate_;
};

/// A module holder that takes its options in braces.
class SqueezeExcite : public torch::nn::ModuleHolder<SqueezeExciteImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit SqueezeExcite(const SqueezeExciteOptions& options)
      : ModuleHolder(std::make_shared<SqueezeExciteImpl>(options)) {}
};

}  // namespace trireme::nn
