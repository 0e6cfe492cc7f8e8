// The interface of all networks of the zoo: images in, one score per class out.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace trireme::models {

/// A factor of the learning rate for the parameters whose names begin with `prefix`.
struct LrFactor {
  std::string prefix;  ///< with its last dot: "blocks3."
  double factor = 1;
};

/// forward() has no branches that depend on the values, so that a network can be traced, and keeps a channels-last
/// layout. Parameters have the names that published weights have: torchvision's, or PaddleClas' for its own networks.
/// Thread rule as for any torch module: one thread at a time in training, any number in evaluation.
class Classifier : public torch::nn::Module {
 public:
  using torch::nn::Module::Module;
  /// batch x channels x height x width -> batch x classes, before any softmax.
  virtual torch::Tensor forward(torch::Tensor images) = 0;
  /// Replaces what only training needs by something smaller that gives the same outputs in evaluation. For inference:
  /// parameters disappear, so an optimizer made before is of no more use. Does nothing where there is nothing to do.
  virtual void reparameterize() {}
  /// What ModelOptions::lr_mult_list asks for, to be followed by the optimizer. Empty: one rate for all.
  const std::vector<LrFactor>& lr_factors() const { return lr_factors_; }

 protected:
  std::vector<LrFactor> lr_factors_;
};

/// An option that is not set takes the network's own value: 1000 classes of 3-channel images as a rule, 10 of 1 channel
/// for LeNet and MnistPerceptron. Every maker throws UsageError for an option that its network cannot honour.
struct ModelOptions {
  std::optional<int64_t> class_num = {};
  std::optional<int64_t> in_channels = {};
  std::optional<double> dropout = {};  ///< probability before the last layer; only for networks that have one
  bool small_input = false;            ///< for images of about 28 to 64 pixels: the first layer keeps their size

  // Of PPLCNet and PaddleClas' ResNets only; empty: as published.
  std::vector<int64_t> stride_list = {};      ///< of the five places where the image shrinks by 2 otherwise
  std::vector<double> lr_mult_list = {};      ///< factors of the learning rate: the first layer's, then each stage's
  std::optional<bool> first_short_conv = {};  ///< PaddleClas' ResNet18 and 34: false leaves it out, as others do
};

using ClassifierPtr = std::shared_ptr<Classifier>;

}  // namespace trireme::models
