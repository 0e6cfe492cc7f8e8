#include "trireme/nn/fused/batch_norm_act.h"

#include <torch/library.h>
#include <torch/torch.h>

#include <optional>
#include <tuple>
#include <utility>

#include "trireme/nn/fused/passes.h"

namespace trireme::nn::fused {
namespace {

/// A share of a channels-last batch.
struct Part {
  Part(const at::Tensor& x, int64_t begin, int64_t end)
      : offset(begin * x.stride(0)), rows{(end - begin) * x.size(2) * x.size(3), x.size(1)} {}
  int64_t offset;
  kernels::Rows rows;
};

int64_t count_of(const at::Tensor& x) {
  return x.numel() / x.size(1);
}

/// y, [3, channels]: mean, 1 / deviation, variance.
std::tuple<at::Tensor, at::Tensor> norm_forward_operator(const at::Tensor& x, const at::Tensor& weight,
                                                         const at::Tensor& bias,
                                                         const std::optional<at::Tensor>& residual, double epsilon,
                                                         int64_t act) {
  const auto* from = x.const_data_ptr<float>();
  ShareMoments moments(x.size(0), x.size(1));
  over_images(x.size(0), [&](int64_t share, int64_t begin, int64_t end) {
    const Part part(x, begin, end);
    moments.add(share, from + part.offset, part.rows.rows);
  });
  const Norm norm(moments, weight, bias, epsilon, static_cast<kernels::Act>(act));
  at::Tensor y = at::empty_like(x);
  over_images(x.size(0), [&](int64_t, int64_t begin, int64_t end) {
    const Part part(x, begin, end);
    kernels::normalise(from + part.offset, part.rows,
                       {.affine = norm.affine(),
                        .residual = residual ? residual->const_data_ptr<float>() + part.offset : nullptr,
                        .stream = x.numel() >= kBeyondCaches},
                       y.data_ptr<float>() + part.offset);
  });
  return {y, norm.statistics()};
}

/// The gradients of x, weight, bias and, where there is one, residual.
std::vector<at::Tensor> norm_backward_operator(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                               const at::Tensor& bias, const std::optional<at::Tensor>& residual,
                                               const at::Tensor& statistics, int64_t act) {
  Norm norm(statistics, count_of(x), weight, bias, static_cast<kernels::Act>(act));
  at::Tensor dx = at::empty_like(x);
  at::Tensor residual_gradient = residual ? at::empty_like(x) : at::Tensor();
  const auto through = [&](int64_t offset) {
    return kernels::BackwardSums{.affine = norm.affine(),
                                 .mean = norm.mean(),
                                 .residual = residual ? residual->const_data_ptr<float>() + offset : nullptr};
  };
  ShareSums sums(x.size(0), x.size(1));
  over_images(x.size(0), [&](int64_t share, int64_t begin, int64_t end) {
    const Part part(x, begin, end);
    kernels::backward_sums(dy.const_data_ptr<float>() + part.offset, x.const_data_ptr<float>() + part.offset, part.rows,
                           through(part.offset), residual ? residual_gradient.data_ptr<float>() + part.offset : nullptr,
                           sums.first(share), sums.second(share));
  });
  norm.set_backward(sums);
  kernels::BackwardInput input = norm.input();
  input.stream = x.numel() >= kBeyondCaches;
  over_images(x.size(0), [&](int64_t, int64_t begin, int64_t end) {
    const Part part(x, begin, end);
    const auto* raw = x.const_data_ptr<float>() + part.offset;
    auto* to = dx.data_ptr<float>() + part.offset;
    if (residual)
      kernels::backward_input(residual_gradient.const_data_ptr<float>() + part.offset, raw, part.rows, input, to);
    else
      kernels::backward_input_through(dy.const_data_ptr<float>() + part.offset, raw, part.rows, input, through(0), to);
  });
  std::vector<at::Tensor> gradients = {dx, norm.weight_gradient(), norm.bias_gradient()};
  if (residual) gradients.push_back(residual_gradient);
  return gradients;
}

TORCH_LIBRARY_FRAGMENT(trireme, library) {
  library.def(
      "batch_norm_act(Tensor x, Tensor weight, Tensor bias, Tensor? residual, float epsilon, int act) -> "
      "(Tensor, Tensor)");
  library.def(
      "batch_norm_act_backward(Tensor dy, Tensor x, Tensor weight, Tensor bias, Tensor? residual, Tensor statistics, "
      "int act) -> Tensor[]");
  library.impl("batch_norm_act", c10::DispatchKey::CPU, TORCH_FN(norm_forward_operator));
  library.impl("batch_norm_act_backward", c10::DispatchKey::CPU, TORCH_FN(norm_backward_operator));
}

class NormFunction : public torch::autograd::Function<NormFunction> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                                                const torch::Tensor& weight, const torch::Tensor& bias,
                                                const std::optional<torch::Tensor>& residual, double epsilon,
                                                int64_t act) {
    static const auto run = c10::Dispatcher::singleton()
                                .findSchemaOrThrow("trireme::batch_norm_act", "")
                                .typed<decltype(norm_forward_operator)>();
    const at::AutoDispatchBelowADInplaceOrView below;
    auto [y, statistics] = run.call(x, weight, bias, residual, epsilon, act);
    context->save_for_backward({x, weight, bias, statistics, residual.value_or(torch::Tensor())});
    context->saved_data["act"] = act;
    context->mark_non_differentiable({statistics});
    return {y, statistics};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& outputs) {
    refuse_second_derivative();
    static const auto run = c10::Dispatcher::singleton()
                                .findSchemaOrThrow("trireme::batch_norm_act_backward", "")
                                .typed<decltype(norm_backward_operator)>();
    const torch::autograd::variable_list saved = context->get_saved_variables();
    const auto residual = saved[4].defined() ? std::optional(saved[4]) : std::nullopt;
    const at::AutoDispatchBelowADInplaceOrView below;
    torch::autograd::variable_list gradients =
        run.call(outputs[0].contiguous(at::MemoryFormat::ChannelsLast), saved[0], saved[1], saved[2], residual,
                 saved[3], context->saved_data["act"].toInt());
    gradients.resize(6);  // nothing for epsilon and act
    return gradients;
  }
};

}  // namespace

torch::Tensor batch_norm_act(const torch::nn::BatchNorm2d& norm, const torch::Tensor& x, Activation activation,
                             const torch::Tensor& residual) {
  const auto added =
      residual.defined() ? std::optional(residual.contiguous(at::MemoryFormat::ChannelsLast)) : std::nullopt;
  const torch::autograd::variable_list results = NormFunction::apply(
      x, norm->weight, norm->bias, added, norm->options.eps(), static_cast<int64_t>(act_of(activation)));
  update_running_statistics(norm, results[1], count_of(x));
  return results[0];
}

}  // namespace trireme::nn::fused
