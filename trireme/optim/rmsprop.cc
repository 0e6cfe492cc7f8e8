#include "trireme/optim/rmsprop.h"

#include <torch/torch.h>

#include "trireme/core/error.h"
#include "trireme/optim/tensors.h"

namespace trireme::optim {
namespace {

using torch::Tensor;
using torch::optim::OptimizerParamGroup;
using TorchOptions = torch::optim::RMSpropOptions;
using State = torch::optim::RMSpropParamState;

TorchOptions to_torch(const RmsPropOptions& from) {
  if (!(from.lr >= 0 && from.epsilon >= 0 && from.momentum >= 0 && from.weight_decay >= 0))
    throw UsageError("optim::RMSProp: lr {}, epsilon {}, momentum {} and weight_decay {} must not be negative", from.lr,
                     from.epsilon, from.momentum, from.weight_decay);
  if (!(from.rho >= 0 && from.rho < 1)) throw UsageError("optim::RMSProp: rho {} must lie in [0, 1)", from.rho);
  return TorchOptions(from.lr)
      .alpha(from.rho)
      .eps(from.epsilon)
      .momentum(from.momentum)
      .centered(from.centered)
      .weight_decay(from.weight_decay);
}

std::vector<OptimizerParamGroup> with_options(const std::vector<ParamGroup>& groups, const TorchOptions& options) {
  std::vector<OptimizerParamGroup> result;
  for (const ParamGroup& group : groups) {
    auto own = std::make_unique<TorchOptions>(options);
    if (group.weight_decay) own->weight_decay(*group.weight_decay);
    result.emplace_back(group.params, std::move(own));
  }
  return result;
}

/// Zeros at first; what was loaded from elsewhere is brought into the parameter's order.
Tensor kept(const Tensor& param, const Tensor& old) {
  return old.defined() ? in_step_with(param, old) : torch::zeros_like(param);
}

void update(const Tensor& param, State& state, const TorchOptions& options) {
  Tensor gradient = in_step_with(param, param.grad());
  if (options.weight_decay() != 0) gradient = gradient.add(param, options.weight_decay());
  const double rho = options.alpha();
  state.step(state.step() + 1);
  state.square_avg(kept(param, state.square_avg()));
  state.square_avg().mul_(rho).addcmul_(gradient, gradient, 1 - rho);
  Tensor variance = state.square_avg();
  if (options.centered()) {
    state.grad_avg(kept(param, state.grad_avg()));
    state.grad_avg().mul_(rho).add_(gradient, 1 - rho);
    variance = variance.addcmul(state.grad_avg(), state.grad_avg(), -1);
  }
  const Tensor root = variance.add(options.eps()).sqrt_();
  if (options.momentum() == 0) {
    param.addcdiv_(gradient, root, -options.lr());
    return;
  }
  state.momentum_buffer(kept(param, state.momentum_buffer()));
  state.momentum_buffer().mul_(options.momentum()).addcdiv_(gradient, root, options.lr());
  param.sub_(state.momentum_buffer());
}

}  // namespace

RMSProp::RMSProp(std::vector<Tensor> params, const RmsPropOptions& options)
    : torch::optim::RMSprop(std::move(params), to_torch(options)) {}

RMSProp::RMSProp(const std::vector<ParamGroup>& groups, const RmsPropOptions& options)
    : torch::optim::RMSprop(with_options(groups, to_torch(options)), to_torch(options)) {}

Tensor RMSProp::step(LossClosure closure) {
  Tensor loss;
  if (closure) {
    const at::AutoGradMode with_grad(true);
    loss = closure();
  }
  const torch::NoGradGuard no_grad;
  for (OptimizerParamGroup& group : param_groups()) {
    const auto& options = static_cast<const TorchOptions&>(group.options());
    for (const Tensor& param : group.params()) {
      if (!param.grad().defined()) continue;
      auto& state = this->state()[param.unsafeGetTensorImpl()];
      if (!state) state = std::make_unique<State>();
      update(param, static_cast<State&>(*state), options);
    }
  }
  return loss;
}

}  // namespace trireme::optim
