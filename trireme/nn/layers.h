// Layers of image networks that libtorch lacks. A faster kernel for one of them goes in here and serves every network.
//
//   nn::ConvBnAct stem({.in = 3, .out = 16, .kernel = 3, .stride = 2, .activation = nn::Activation::hardswish});
//   nn::SqueezeExcite se({.channels = 16, .squeeze = 4});
//   nn::Dropout dropout(0.2, nn::DropoutScale::in_evaluation);
//   y = dropout->forward(se->forward(stem->forward(x)));
//
// Networks that people have weights for differ in the names of their parameters; hence the names in the options.
// Thread rule as for any torch module: one thread at a time in training, any number in evaluation.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace trireme::nn {

enum class Activation {
  none,
  relu,
  relu6,  ///< clamp(x, 0, 6)
  hardswish,
  silu,  ///< x * sigmoid(x)
  sigmoid,
  hardsigmoid,        ///< clamp(x / 6 + 1/2, 0, 1)
  hardsigmoid_fifth,  ///< clamp(x / 5 + 1/2, 0, 1), the one in PaddleClas' MobileNetV3
};

torch::Tensor activate(const torch::Tensor& x, Activation activation);

/// Likewise, but may overwrite `x`: for a tensor of the caller's own whose values no gradient needs.
torch::Tensor activate_in_place(torch::Tensor x, Activation activation);

/// A module holder that takes its options in braces.
template <typename Impl, typename Options>
class Holder : public torch::nn::ModuleHolder<Impl> {
 public:
  using torch::nn::ModuleHolder<Impl>::ModuleHolder;
  explicit Holder(const Options& options) : torch::nn::ModuleHolder<Impl>(std::make_shared<Impl>(options)) {}
};

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

/// Convolution, batch normalisation and activation as part of another module, for networks whose names have no level of
/// their own for them:
///
///   Block() : first_(*this, {.in = 64, .out = 64, .conv_name = "conv1", .bn_name = "bn1"}) {}
class ConvBnUnit {
 public:
  /// Registers the layers in `parent`. UsageError for sizes that make no convolution.
  ConvBnUnit(torch::nn::Module& parent, const ConvBnActOptions& options);
  torch::Tensor forward(const torch::Tensor& x);
  /// With something added between normalisation and activation, as at the end of a residual block.
  torch::Tensor forward_adding(const torch::Tensor& x, const torch::Tensor& residual);
  /// The same for two readers, as the next block and its shortcut: on a GPU their gradients need no pass to be added.
  std::pair<torch::Tensor, torch::Tensor> forward_adding_twice(const torch::Tensor& x, const torch::Tensor& residual);
  /// From the running statistics.
  FoldedConv folded() const;

  const torch::nn::Conv2d& conv() const { return conv_; }
  const torch::nn::BatchNorm2d& bn() const { return bn_; }
  Activation activation() const { return activation_; }

 private:
  torch::nn::Conv2d conv_;
  torch::nn::BatchNorm2d bn_;
  Activation activation_;
};

/// The same as a module of its own, with the parameters conv.weight, bn.weight and bn.bias.
class ConvBnActImpl : public torch::nn::Module, public ConvBnUnit {
 public:
  explicit ConvBnActImpl(const ConvBnActOptions& options) : ConvBnUnit(*this, options) {}
};
using ConvBnAct = Holder<ConvBnActImpl, ConvBnActOptions>;

struct SqueezeExciteOptions {
  int64_t channels = 0;
  int64_t squeeze = 0;  ///< width of the narrow layer; a quarter of the channels as a rule
  Activation gate = Activation::hardsigmoid;
  std::string squeeze_name = "fc1";
  std::string excite_name = "fc2";
};

/// Squeeze-and-excitation (Hu et al., 2018): each channel times a factor in [0, 1] that is computed from the means of
/// all channels, through a narrow layer. Parameters fc1.weight, fc1.bias, fc2.…
class SqueezeExciteImpl : public torch::nn::Module {
 public:
  /// UsageError unless both widths are 1 or more.
  explicit SqueezeExciteImpl(const SqueezeExciteOptions& options);
  torch::Tensor forward(const torch::Tensor& x);

  const torch::nn::Conv2d& squeeze() const { return squeeze_; }
  const torch::nn::Conv2d& excite() const { return excite_; }
  Activation gate() const { return gate_; }

 private:
  torch::nn::Conv2d squeeze_;
  torch::nn::Conv2d excite_;
  Activation gate_;
};
using SqueezeExcite = Holder<SqueezeExciteImpl, SqueezeExciteOptions>;

/// Where the scale of Dropout goes. torch multiplies what it keeps by 1 / (1 - p), so that evaluation need not do
/// anything. PaddleClas' networks keep it as it is ("downscale_in_infer") and multiply by 1 - p in evaluation: only so
/// their weights give the right outputs.
enum class DropoutScale { in_training, in_evaluation };

class DropoutImpl : public torch::nn::Module {
 public:
  /// UsageError unless 0 <= p < 1. Neither mode changes anything for p = 0.
  explicit DropoutImpl(double p, DropoutScale scale = DropoutScale::in_training);
  torch::Tensor forward(const torch::Tensor& x);

 private:
  double p_;
  DropoutScale scale_;
};
TORCH_MODULE(Dropout);

}  // namespace trireme::nn
