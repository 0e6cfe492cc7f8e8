#include "trireme/nn/fused/batch_norm_act.h"

#include <torch/library.h>
#include <torch/torch.h>

#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "trireme/nn/batch_norm_state.h"
#include "trireme/nn/fused/gpu_layers.h"
#include "trireme/nn/fused/passes.h"

namespace trireme::nn::fused {
namespace {

/// A share of a channels-last batch.
struct Part {
  Part(const at::Tensor& x, int64_t begin, int64_t end)
      : offset(begin * image_size(x)), rows{(end - begin) * x.size(2) * x.size(3), x.size(1)} {}
  int64_t offset;
  kernels::Rows rows;
};

int64_t count_of(const at::Tensor& x) {
  return x.numel() / x.size(1);
}

at::ArrayRef<double> numbers_in(const at::Tensor& doubles) {
  return {doubles.const_data_ptr<double>(), static_cast<size_t>(doubles.numel())};
}

at::Tensor tensor_of(const std::vector<double>& numbers) {
  return at::tensor(numbers, at::kDouble);
}

// Each direction is two operators, between which ranks that normalise together exchange what they have. They are
// operators of libtorch's dispatcher, so that whoever watches operators (the profiler, sharded parameters) sees them.

/// ShareMoments::packed() of the batch.
at::Tensor moments_operator(const at::Tensor& x) {
  const auto* from = x.const_data_ptr<float>();
  ShareMoments moments(x.size(0), x.size(1));
  over_images(x.size(0), [&](int64_t share, int64_t begin, int64_t end) {
    const Part part(x, begin, end);
    moments.add(share, from + part.offset, part.rows.rows);
  });
  return tensor_of(moments.packed());
}

/// y, [3, channels]: mean, 1 / deviation, variance.
std::tuple<at::Tensor, at::Tensor> norm_forward_operator(const at::Tensor& x, const at::Tensor& weight,
                                                         const at::Tensor& bias,
                                                         const std::optional<at::Tensor>& residual,
                                                         const at::Tensor& moments, double epsilon, int64_t act) {
  const auto* from = x.const_data_ptr<float>();
  const Norm norm(numbers_in(moments), weight, bias, epsilon, static_cast<kernels::Act>(act));
  at::Tensor y = at::empty_like(x);
  const bool stream = is_streamed(y);
  over_images(x.size(0), [&](int64_t, int64_t begin, int64_t end) {
    const Part part(x, begin, end);
    kernels::normalise(from + part.offset, part.rows,
                       {.affine = norm.affine(),
                        .residual = residual ? residual->const_data_ptr<float>() + part.offset : nullptr,
                        .stream = stream},
                       y.data_ptr<float>() + part.offset);
  });
  return {y, norm.statistics()};
}

/// [2, channels]: Norm::normal_sums(). And, where there is a residual, its gradient: that in front of the activation.
std::vector<at::Tensor> backward_sums_operator(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                               const at::Tensor& bias, const std::optional<at::Tensor>& residual,
                                               const at::Tensor& statistics, int64_t act) {
  const Norm norm(statistics, 1, weight, bias, static_cast<kernels::Act>(act));
  at::Tensor gradient = residual ? at::empty_like(x) : at::Tensor();
  ShareSums sums(x.size(0), x.size(1));
  over_images(x.size(0), [&](int64_t share, int64_t begin, int64_t end) {
    const Part part(x, begin, end);
    kernels::backward_sums(dy.const_data_ptr<float>() + part.offset, x.const_data_ptr<float>() + part.offset, part.rows,
                           {.affine = norm.affine(),
                            .mean = norm.mean(),
                            .residual = residual ? residual->const_data_ptr<float>() + part.offset : nullptr},
                           residual ? gradient.data_ptr<float>() + part.offset : nullptr, sums.first(share),
                           sums.second(share));
  });
  std::vector<at::Tensor> results = {tensor_of(norm.normal_sums(sums)).view({2, x.size(1)})};
  if (residual) results.push_back(gradient);
  return results;
}

/// dx, from the sums over a batch of `count` numbers a channel.
at::Tensor backward_input_operator(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                                   const at::Tensor& bias, const at::Tensor& statistics, const at::Tensor& sums,
                                   double count, int64_t act) {
  Norm norm(statistics, count, weight, bias, static_cast<kernels::Act>(act));
  norm.set_backward(numbers_in(sums));
  kernels::BackwardInput input = norm.input();
  input.stream = is_streamed(x);
  at::Tensor dx = at::empty_like(x);
  over_images(x.size(0), [&](int64_t, int64_t begin, int64_t end) {
    const Part part(x, begin, end);
    kernels::backward_input_through(dy.const_data_ptr<float>() + part.offset, x.const_data_ptr<float>() + part.offset,
                                    part.rows, input, {.affine = norm.affine(), .mean = norm.mean()},
                                    dx.data_ptr<float>() + part.offset);
  });
  return dx;
}

TORCH_LIBRARY_FRAGMENT(trireme, library) {
  library.def("batch_norm_moments(Tensor x) -> Tensor");
  library.def(
      "batch_norm_act(Tensor x, Tensor weight, Tensor bias, Tensor? residual, Tensor moments, float epsilon, int act) "
      "-> (Tensor, Tensor)");
  library.def(
      "batch_norm_act_sums(Tensor dy, Tensor x, Tensor weight, Tensor bias, Tensor? residual, Tensor statistics, "
      "int act) -> Tensor[]");
  library.def(
      "batch_norm_act_backward(Tensor dy, Tensor x, Tensor weight, Tensor bias, Tensor statistics, Tensor sums, "
      "float count, int act) -> Tensor");
  library.impl("batch_norm_moments", c10::DispatchKey::CPU, TORCH_FN(moments_operator));
  library.impl("batch_norm_act", c10::DispatchKey::CPU, TORCH_FN(norm_forward_operator));
  library.impl("batch_norm_act_sums", c10::DispatchKey::CPU, TORCH_FN(backward_sums_operator));
  library.impl("batch_norm_act_backward", c10::DispatchKey::CPU, TORCH_FN(backward_input_operator));
}

template <typename Signature>
auto norm_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

using Peers = std::shared_ptr<const NormPeers>;

struct PeersHolder : torch::CustomClassHolder {
  explicit PeersHolder(Peers all) : peers(std::move(all)) {}
  Peers peers;
};

class NormFunction : public torch::autograd::Function<NormFunction> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                                                const torch::Tensor& weight, const torch::Tensor& bias,
                                                const std::optional<torch::Tensor>& residual,
                                                const torch::Tensor& moments, double epsilon, int64_t act,
                                                const Peers& peers) {
    static const auto run = norm_operator<decltype(norm_forward_operator)>("trireme::batch_norm_act");
    const at::AutoDispatchBelowADInplaceOrView below;
    auto [y, statistics] = run.call(x, weight, bias, residual, moments, epsilon, act);
    context->save_for_backward({x, weight, bias, statistics, residual.value_or(torch::Tensor())});
    context->saved_data["act"] = act;
    context->saved_data["count"] = numbers_in(moments).back();
    if (peers) context->saved_data["peers"] = c10::IValue::make_capsule(c10::make_intrusive<PeersHolder>(peers));
    context->mark_non_differentiable({statistics});
    return {y, statistics};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& outputs) {
    refuse_second_derivative();
    static const auto find_sums = norm_operator<decltype(backward_sums_operator)>("trireme::batch_norm_act_sums");
    static const auto find_input = norm_operator<decltype(backward_input_operator)>("trireme::batch_norm_act_backward");
    const torch::autograd::variable_list saved = context->get_saved_variables();
    const torch::Tensor &x = saved[0], &weight = saved[1], &bias = saved[2], &statistics = saved[3];
    const auto residual = saved[4].defined() ? std::optional(saved[4]) : std::nullopt;
    const int64_t act = context->saved_data["act"].toInt();
    const torch::Tensor dy = outputs[0].contiguous(at::MemoryFormat::ChannelsLast);
    const at::AutoDispatchBelowADInplaceOrView below;
    const std::vector<at::Tensor> mine = find_sums.call(dy, x, weight, bias, residual, statistics, act);
    const torch::Tensor sums = over_all_ranks(*context, mine[0]);
    const double count = context->saved_data["count"].toDouble();
    const torch::Tensor dx = residual ? find_input.call(mine[1], x, weight, bias, statistics, sums, count, kNoAct)
                                      : find_input.call(dy, x, weight, bias, statistics, sums, count, act);
    // The parameters' gradients are those of this rank's batch: averaging them is up to whoever exchanges gradients.
    torch::autograd::variable_list gradients = {dx, mine[0][1].to(at::kFloat), mine[0][0].to(at::kFloat)};
    if (residual) gradients.push_back(mine[1]);
    gradients.resize(8);  // nothing for moments, epsilon, act and peers
    return gradients;
  }

 private:
  static constexpr auto kNoAct = static_cast<int64_t>(kernels::Act::none);

  static torch::Tensor over_all_ranks(torch::autograd::AutogradContext& context, const torch::Tensor& sums) {
    const auto found = context.saved_data.find("peers");
    if (found == context.saved_data.end()) return sums;
    return c10::static_intrusive_pointer_cast<PeersHolder>(found->second.toCapsule())->peers->sum(sums);
  }
};

torch::Tensor moments_of(const torch::Tensor& x, const Peers& peers) {
  static const auto run = norm_operator<decltype(moments_operator)>("trireme::batch_norm_moments");
  const at::AutoDispatchBelowADInplaceOrView below;
  const torch::Tensor mine = run.call(x);
  return peers ? peers->join(mine) : mine;
}

}  // namespace

Normalised normalise_act(const NormInput& input, const std::shared_ptr<const NormPeers>& peers) {
  const torch::Tensor moments = moments_of(input.x, peers);
  const auto residual = input.residual.defined()
                            ? std::optional(input.residual.contiguous(at::MemoryFormat::ChannelsLast))
                            : std::nullopt;
  const torch::autograd::variable_list results =
      NormFunction::apply(input.x, input.weight, input.bias, residual, moments, input.epsilon,
                          static_cast<int64_t>(act_of(input.activation)), peers);
  return {results[0], results[1], numbers_in(moments).back()};
}

torch::Tensor batch_norm_act(const torch::nn::BatchNorm2dImpl& norm, const torch::Tensor& x, Activation activation,
                             const torch::Tensor& residual) {
  const Normalised result = normalise_act({.x = x,
                                           .weight = norm.weight,
                                           .bias = norm.bias,
                                           .residual = residual,
                                           .epsilon = norm.options.eps(),
                                           .activation = activation},
                                          norm_peers(norm.weight));
  update_running_statistics(norm, result.statistics, result.count);
  return result.y;
}

bool can_fuse(const torch::nn::BatchNorm2dImpl& norm, const torch::Tensor& x, Activation activation,
              const torch::Tensor& residual) {
  if (!can_fuse_input(x) || !can_fuse_norm(norm, activation)) return false;
  const bool channels_fit = x.size(1) == norm.weight.numel() && x.size(1) == norm.bias.numel() &&
                            x.size(1) == norm.running_mean.numel() && x.size(1) == norm.running_var.numel();
  const bool residual_fits =
      !residual.defined() || (residual.sizes() == x.sizes() && residual.options().type_equal(x.options()));
  return channels_fit && residual_fits && count_of(x) > 1;  // one number has no variance: libtorch's layer refuses it
}

torch::Tensor norm_add_act(torch::nn::BatchNorm2dImpl& norm, const torch::Tensor& x, Activation activation,
                           const torch::Tensor& residual) {
  if (can_fuse(norm, x, activation, residual)) return batch_norm_act(norm, x, activation, residual);
  if (const auto y = gpu::norm_add_act(norm, x, activation, residual)) return *y;
  torch::Tensor y = norm.forward(x);
  if (residual.defined()) y.add_(residual);
  return activate_in_place(y, activation);
}

}  // namespace trireme::nn::fused
