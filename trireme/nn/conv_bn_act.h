// Convolution, batch normalisation, activation: what image networks are made of, in one place. A faster kernel for the
// three goes in here and serves every network.
//
//   nn::ConvBnAct stem({.in = 3, .out = 16, .kernel = 3, .stride = 2, .activation = nn::Activation::hardswish});
//   y = stem->forward(x);                                            // parameters conv.weight, bn.weight, bn.bias
//
// Networks that people have weights for differ in the names; hence conv_name and bn_name.
// Thread rule as for any torch module: one thread at a time in training, any number in evaluation.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/nn/activation.h"

namespace trireme::nn {

struct ConvBnActOptions {
  int64_t in = 0;
  int64_t out = 0;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t groups = 1;
  std::optional<int64_t> padding = {};  ///< (kernel - 1) / 2, which keeps the size at stride 1
  Activation activation = Activation::relu;
  double bn_epsilon = 1e-5;
  double bn_momentum = 0.1;  ///< the share of the new batch in the running statistics; Paddle states the rest, 0.9
  std::string conv_name = "conv";
  std::string bn_name = "bn";
};

/// A convolution that does in evaluation what convolution and normalisation do together.
struct FoldedConv {
  torch::Tensor weight;
  torch::Tensor bias;
};

/// The three as part of another module, for networks whose names have no level of their own for them:
///
///   Block() : first_(*this, {.in = 64, .out = 64, .conv_name = "conv1", .bn_name = "bn1"}) {}
class ConvBnUnit {
 public:
  /// Registers the layers in `parent`. UsageError for sizes that make no convolution.
  ConvBnUnit(torch::nn::Module& parent, const ConvBnActOptions& options);
  torch::Tensor forward(const torch::Tensor& x);
  /// From the running statistics.
  FoldedConv folded() const;

 private:
  torch::nn::Conv2d conv_;
  torch::nn::BatchNorm2d bn_;
  Activation activation_;
};

class ConvBnActImpl : public torch::nn::Module {
 public:
  explicit ConvBnActImpl(const ConvBnActOptions& options) : unit_(*this, options) {}
  torch::Tensor forward(const torch::Tensor& x) { return unit_.forward(x); }
  FoldedConv folded() const { return unit_.folded(); }

 private:
  ConvBnUnit unit_;
};

/// A module holder that takes its options in braces.
class ConvBnAct : public torch::nn::ModuleHolder<ConvBnActImpl> {
 public:
  using ModuleHolder::ModuleHolder;
  explicit ConvBnAct(const ConvBnActOptions& options) : ModuleHolder(std::make_shared<ConvBnActImpl>(options)) {}
};

}  // namespace trireme::nn
