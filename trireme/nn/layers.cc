#include "trireme/nn/layers.h"

#include <torch/torch.h>

#include "trireme/core/error.h"
#include "trireme/nn/fused/batch_norm_act.h"
#include "trireme/nn/fused/gpu_layers.h"

namespace trireme::nn {
namespace {

void check(const ConvBnActOptions& options) {
  const auto& [in, out, kernel, stride, groups, padding, activation, epsilon, momentum, conv_name, bn_name] = options;
  if (in < 1 || out < 1 || kernel < 1 || stride < 1 || groups < 1)
    throw UsageError("ConvBnAct {}: in {}, out {}, kernel {}, stride {} and groups {} must all be 1 or more", conv_name,
                     in, out, kernel, stride, groups);
  if (in % groups != 0 || out % groups != 0)
    throw UsageError("ConvBnAct {}: {} channels in and {} out cannot be divided into {} groups", conv_name, in, out,
                     groups);
  if (conv_name == bn_name)
    throw UsageError("ConvBnAct: convolution and normalisation are both named '{}'; give each its own", bn_name);
}

torch::nn::Conv2d convolution(const ConvBnActOptions& options) {
  check(options);
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(options.in, options.out, options.kernel)
                               .stride(options.stride)
                               .padding(options.padding.value_or((options.kernel - 1) / 2))
                               .groups(options.groups)
                               .bias(false));
}

torch::nn::BatchNorm2d normalisation(const ConvBnActOptions& options) {
  return torch::nn::BatchNorm2d(
      torch::nn::BatchNorm2dOptions(options.out).eps(options.bn_epsilon).momentum(options.bn_momentum));
}

torch::nn::Conv2d pointwise(int64_t in, int64_t out) {
  if (in < 1 || out < 1)
    throw UsageError("SqueezeExcite: a layer of {} channels in and {} out; both must be 1 or more", in, out);
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 1));
}

/// What a convolution of one pixel is; on a GPU its addition is no kernel of its own.
torch::Tensor as_linear(torch::nn::Conv2d& conv, const torch::Tensor& rows) {
  return torch::linear(rows, conv->weight.flatten(1), conv->bias);
}

}  // namespace

torch::Tensor activate(const torch::Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return torch::relu(x);
    case Activation::relu6:
      return torch::hardtanh(x, 0, 6);
    case Activation::hardswish:
      return torch::hardswish(x);
    case Activation::silu:
      return torch::silu(x);
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

ConvBnUnit::ConvBnUnit(torch::nn::Module& parent, const ConvBnActOptions& options)
    : conv_(parent.register_module(options.conv_name, convolution(options))),
      bn_(parent.register_module(options.bn_name, normalisation(options))),
      activation_(options.activation) {}

torch::Tensor ConvBnUnit::forward(const torch::Tensor& x) {
  return forward_adding(x, {});
}

torch::Tensor ConvBnUnit::forward_adding(const torch::Tensor& x, const torch::Tensor& residual) {
  return fused::norm_add_act(*bn_, fused::gpu::convolve(*conv_, x), activation_, residual);
}

std::pair<torch::Tensor, torch::Tensor> ConvBnUnit::forward_adding_twice(const torch::Tensor& x,
                                                                         const torch::Tensor& residual) {
  const torch::Tensor raw = fused::gpu::convolve(*conv_, x);
  if (const auto both = fused::gpu::norm_add_act_twice(*bn_, raw, activation_, residual))
    return {both->first, both->second};
  const torch::Tensor y = fused::norm_add_act(*bn_, raw, activation_, residual);
  return {y, y};
}

FoldedConv ConvBnUnit::folded() const {
  const torch::NoGradGuard no_grad;
  // In double: the two roundings to float would otherwise add to those of the sum over branches.
  const auto wide = [](const torch::Tensor& values) { return values.to(torch::kDouble); };
  const torch::Tensor scale = wide(bn_->weight) / (wide(bn_->running_var) + bn_->options.eps()).sqrt();
  const torch::Tensor bias = wide(bn_->bias) - wide(bn_->running_mean) * scale;
  const auto type = conv_->weight.scalar_type();
  return {(wide(conv_->weight) * scale.reshape({-1, 1, 1, 1})).to(type), bias.to(type)};
}

SqueezeExciteImpl::SqueezeExciteImpl(const SqueezeExciteOptions& options)
    : squeeze_(register_module(options.squeeze_name, pointwise(options.channels, options.squeeze))),
      excite_(register_module(options.excite_name, pointwise(options.squeeze, options.channels))),
      gate_(options.gate) {}

torch::Tensor SqueezeExciteImpl::forward(const torch::Tensor& x) {
  if (const auto image = fused::gpu::SqueezedImage::of(x)) {
    const torch::Tensor narrow = as_linear(squeeze_, image->means()).relu_();
    return image->times(activate(as_linear(excite_, narrow), gate_));
  }
  const torch::Tensor mean = torch::adaptive_avg_pool2d(x, {1, 1});
  return x * activate(excite_->forward(squeeze_->forward(mean).relu_()), gate_);
}

DropoutImpl::DropoutImpl(double p, DropoutScale scale) : p_(p), scale_(scale) {
  if (!(p >= 0 && p < 1)) throw UsageError("Dropout: the probability is {}; it must be in [0, 1)", p);
}

torch::Tensor DropoutImpl::forward(const torch::Tensor& x) {
  if (p_ == 0) return x;
  const torch::Tensor y = torch::dropout(x, p_, is_training());
  return scale_ == DropoutScale::in_evaluation ? y * (1 - p_) : y;
}

}  // namespace trireme::nn
