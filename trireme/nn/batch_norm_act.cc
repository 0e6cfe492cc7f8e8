#include "trireme/nn/batch_norm_act.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/nn/fused/batch_norm_act.h"

namespace trireme::nn {
namespace {

torch::nn::BatchNorm2dOptions options_of(const BatchNormActOptions& options) {
  if (options.channels < 1) throw UsageError("BatchNormAct: {} channels; there must be 1 or more", options.channels);
  return torch::nn::BatchNorm2dOptions(options.channels).eps(options.epsilon).momentum(options.momentum);
}

std::string_view name_of(Activation activation) {
  constexpr std::array<std::string_view, 8> kNames = {"none", "relu",    "relu6",       "hardswish",
                                                      "silu", "sigmoid", "hardsigmoid", "hardsigmoid_fifth"};
  return kNames.at(static_cast<size_t>(activation));
}

}  // namespace

BatchNormActImpl::BatchNormActImpl(const BatchNormActOptions& options)
    : BatchNorm2dImpl(options_of(options)), activation_(options.activation) {}

torch::Tensor BatchNormActImpl::forward(const torch::Tensor& x) {
  return forward_adding(x, {});
}

torch::Tensor BatchNormActImpl::forward_adding(const torch::Tensor& x, const torch::Tensor& residual) {
  return fused::norm_add_act(*this, x, activation_, residual);
}

// libtorch's clone() copies the base class alone, without the activation.
std::shared_ptr<torch::nn::Module> BatchNormActImpl::clone(const std::optional<torch::Device>& device) const {
  const std::shared_ptr<torch::nn::Module> norm = BatchNorm2dImpl::clone(device);
  return std::shared_ptr<BatchNormActImpl>(new BatchNormActImpl(*norm->as<BatchNorm2dImpl>(), activation_));
}

void BatchNormActImpl::pretty_print(std::ostream& stream) const {
  stream << "trireme::nn::BatchNormAct(" << options.num_features() << ", " << name_of(activation_) << ")";
}

}  // namespace trireme::nn
