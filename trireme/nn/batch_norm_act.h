// Batch normalisation with the activation behind it, trained in one fused pass: for networks of your own.
//
//   nn::BatchNormAct bn1(64);                                              // with ReLU
//   nn::BatchNormAct bn2({.channels = 64, .activation = nn::Activation::silu});
//   x = bn1->forward(conv1->forward(x));
//   x = bn2->forward_adding(conv2->forward(x), shortcut);                  // silu(bn2(...) + shortcut)
//
// A network of libtorch's own layers in Sequentials is converted as it is:
//
//   torch::nn::Sequential net(Conv2d(...), BatchNorm2d(64), ReLU(), ...);
//   nn::convert_batch_norm_act(*net);                                      // before or after DataParallel
//
// Fused means: training, channels last, with gradients: on the CPU in float, on a GPU in float, half and bfloat16, under
// autocast too. Otherwise the layers run one by one, as libtorch's own. Either way the results are those of the layers,
// up to the rounding of their type. A fused pass has no second derivative (UsageError). Thread rule as for any torch
// module: one thread at a time in training.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>

#include "trireme/nn/layers.h"

namespace trireme::nn {

struct BatchNormActOptions {
  int64_t channels = 0;
  Activation activation = Activation::relu;
  double epsilon = 1e-5;
  double momentum = 0.1;  ///< the share of the new batch in the running statistics
};

/// A torch::nn::BatchNorm2d that activates what it returns: the same parameters and buffers, so that a checkpoint of the
/// one loads into the other.
class BatchNormActImpl : public torch::nn::BatchNorm2dImpl {
 public:
  /// UsageError unless there are channels.
  explicit BatchNormActImpl(const BatchNormActOptions& options);
  explicit BatchNormActImpl(int64_t channels) : BatchNormActImpl(BatchNormActOptions{.channels = channels}) {}
  torch::Tensor forward(const torch::Tensor& x);
  /// activation(normalised x + residual). What is added may have any shape that broadcasts to x's.
  torch::Tensor forward_adding(const torch::Tensor& x, const torch::Tensor& residual);

  Activation activation() const { return activation_; }
  std::shared_ptr<torch::nn::Module> clone(const std::optional<torch::Device>& device = std::nullopt) const override;
  void pretty_print(std::ostream& stream) const override;

 private:
  BatchNormActImpl(const torch::nn::BatchNorm2dImpl& norm, Activation activation)
      : BatchNorm2dImpl(norm), activation_(activation) {}

  Activation activation_;
};
using BatchNormAct = Holder<BatchNormActImpl, BatchNormActOptions>;

/// Lets every torch::nn::BatchNorm2d that stands in a torch::nn::Sequential inside `module` train in a fused pass,
/// together with the ReLU, ReLU6 or SiLU behind it, if there is one. Returns how many do so now; a second call changes
/// nothing. UsageError if there is none: what a module's own forward() calls cannot be exchanged from outside.
///
/// The layers stay children of the Sequential, under their names: state dicts, optimizers, train(), eval(), to(),
/// options, hooks on parameters, layers that are used twice, and convert_sync_batch_norm() work as before. Only what the
/// Sequential calls is another: at its places of a normalisation and its activation, the first now returns the activated
/// result and the second passes it on. So at<ReLUImpl>(i) is an error there, and outputs that a loop over the
/// Sequential's layers takes between the two are activated already. clone() of a converted Sequential is a UsageError:
/// clone it first, then convert both.
///
/// Classes derived from Sequential, BatchNorm2d or an activation are left as they are.
int convert_batch_norm_act(torch::nn::Module& module);

}  // namespace trireme::nn
