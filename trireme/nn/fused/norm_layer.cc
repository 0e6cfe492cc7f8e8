#include "trireme/nn/fused/norm_layer.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/torch.h>

#include <algorithm>
#include <mutex>

#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/nn/batch_norm_state.h"
#include "trireme/nn/kernels/dispatch.h"

namespace trireme::nn::fused {
namespace {

bool is_float_on_cpu(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() && tensor.scalar_type() == torch::kFloat &&
         tensor.layout() == torch::kStrided;
}

/// As the kernels read a parameter: one number after the other.
bool is_float_row(const torch::Tensor& tensor) {
  return is_float_on_cpu(tensor) && tensor.is_contiguous();
}

}  // namespace

bool is_switched_off() {
  static std::once_flag chosen;
  std::call_once(chosen, kernels::choose_vectors);
  return env::get("TRIREME_FUSED") == "0";
}

bool can_fuse_input(const torch::Tensor& x) {
  return !is_switched_off() && is_float_on_cpu(x) && x.dim() == 4 && x.numel() > 0 &&
         x.is_contiguous(at::MemoryFormat::ChannelsLast) && torch::GradMode::is_enabled() &&
         !at::autocast::is_autocast_enabled(at::kCPU) && !torch::jit::tracer::isTracing();
}

bool can_fuse_norm(const torch::nn::BatchNorm2dImpl& norm, Activation activation) {
  const torch::nn::BatchNormOptions& options = norm.options;
  const bool is_known = activation == Activation::none || act_of(activation) != kernels::Act::none;
  return is_known && norm.is_training() && options.affine() && options.track_running_stats() &&
         options.momentum().has_value() && is_float_row(norm.weight) && is_float_row(norm.bias) &&
         is_float_on_cpu(norm.running_mean) && is_float_on_cpu(norm.running_var) && norm.num_batches_tracked.defined();
}

kernels::Act act_of(Activation activation) {
  switch (activation) {
    case Activation::relu:
      return kernels::Act::relu;
    case Activation::relu6:
      return kernels::Act::relu6;
    case Activation::hardswish:
      return kernels::Act::hardswish;
    case Activation::silu:
      return kernels::Act::silu;
    default:
      return kernels::Act::none;
  }
}

void update_running_statistics(const torch::nn::BatchNorm2dImpl& norm, const torch::Tensor& statistics, double count) {
  const torch::NoGradGuard no_grad;
  norm.num_batches_tracked.add_(1);
  if (running_statistics_stay()) return;
  const double share = norm.options.momentum().value();
  const double unbiased = count / std::max(count - 1, 1.0);
  norm.running_mean.mul_(1 - share).add_(statistics[0], share);
  norm.running_var.mul_(1 - share).add_(statistics[2], share * unbiased);
}

void refuse_second_derivative() {
  if (at::GradMode::is_enabled())
    throw UsageError(
        "fused layers have no second derivative: use create_graph = false, or TRIREME_FUSED=0, which trains layer by "
        "layer");
}

}  // namespace trireme::nn::fused
