#include "trireme/optim/optimizers.h"

#include <torch/torch.h>

#include "trireme/core/error.h"
#include "trireme/core/levers.h"
#include "trireme/core/training_note.h"
#include "trireme/optim/tensors.h"

namespace trireme::optim {
namespace {

[[gnu::section(".note.trireme"), gnu::used]] const TrainingNote kOptimizersNote{};

using torch::Tensor;
using torch::optim::Optimizer;
using torch::optim::OptimizerParamGroup;

void check_not_negative(const char* who, const char* what, double value) {
  if (!(value >= 0)) throw UsageError("optim::{}: {} {} must not be negative", who, what, value);
}

torch::optim::SGDOptions to_torch(const SgdOptions& from) {
  check_not_negative("SGD", "lr", from.lr);
  check_not_negative("SGD", "momentum", from.momentum);
  check_not_negative("SGD", "weight_decay", from.weight_decay);
  if (from.nesterov && (from.momentum <= 0 || from.dampening != 0))
    throw UsageError("optim::SGD: nesterov needs a momentum above 0 and no dampening; they are {} and {}",
                     from.momentum, from.dampening);
  return torch::optim::SGDOptions(from.lr)
      .momentum(from.momentum)
      .dampening(from.dampening)
      .weight_decay(from.weight_decay)
      .nesterov(from.nesterov);
}

SgdOptions to_sgd(const MomentumOptions& from) {
  return {.lr = from.lr,
          .momentum = from.momentum,
          .dampening = 0,
          .weight_decay = from.weight_decay,
          .nesterov = from.use_nesterov};
}

void check_beta(const char* who, const char* what, double value) {
  if (!(value >= 0 && value < 1)) throw UsageError("optim::{}: {} {} must lie in [0, 1)", who, what, value);
}

template <typename TorchOptions, typename Options>
TorchOptions adam_to_torch(const char* who, const Options& from) {
  check_not_negative(who, "lr", from.lr);
  check_not_negative(who, "epsilon", from.epsilon);
  check_not_negative(who, "weight_decay", from.weight_decay);
  check_beta(who, "beta1", from.beta1);
  check_beta(who, "beta2", from.beta2);
  return TorchOptions(from.lr)
      .betas({from.beta1, from.beta2})
      .eps(from.epsilon)
      .weight_decay(from.weight_decay)
      .amsgrad(from.amsgrad);
}

torch::optim::RMSpropOptions to_torch(const RmsPropOptions& from) {
  check_not_negative("RMSProp", "lr", from.lr);
  check_not_negative("RMSProp", "epsilon", from.epsilon);
  check_not_negative("RMSProp", "momentum", from.momentum);
  check_not_negative("RMSProp", "weight_decay", from.weight_decay);
  check_beta("RMSProp", "rho", from.rho);
  return torch::optim::RMSpropOptions(from.lr)
      .alpha(from.rho)
      .eps(from.epsilon)
      .momentum(from.momentum)
      .centered(from.centered)
      .weight_decay(from.weight_decay);
}

torch::optim::AdamOptions to_torch(const AdamOptions& from) {
  return adam_to_torch<torch::optim::AdamOptions>("Adam", from);
}

torch::optim::AdamWOptions to_torch(const AdamWOptions& from) {
  return adam_to_torch<torch::optim::AdamWOptions>("AdamW", from);
}

/// Options of a group with a factor: get_lr() and set_lr() speak of the optimizer's rate, lr() is the group's.
template <typename TorchOptions>
class FactoredOptions : public TorchOptions {
 public:
  FactoredOptions(const TorchOptions& options, double factor) : TorchOptions(options), factor_(factor) {
    set_lr(options.lr());
  }
  double get_lr() const override { return factor_ > 0 ? this->lr() / factor_ : rate_; }
  void set_lr(const double rate) override {
    rate_ = rate;
    this->lr(rate * factor_);
  }
  std::unique_ptr<torch::optim::OptimizerOptions> clone() const override {
    return std::make_unique<FactoredOptions>(*this);
  }

 private:
  double factor_;
  double rate_ = 0;  // for a factor of 0, from which it cannot be told
};

template <typename TorchOptions>
std::unique_ptr<TorchOptions> group_options(const ParamGroup& group, const TorchOptions& options) {
  if (group.lr_factor == 1) return std::make_unique<TorchOptions>(options);
  return std::make_unique<FactoredOptions<TorchOptions>>(options, group.lr_factor);
}

/// Each group with options of its own, so that a group's decay and rate can differ.
template <typename TorchOptions>
std::vector<OptimizerParamGroup> with_options(const std::vector<ParamGroup>& groups, const TorchOptions& options) {
  std::vector<OptimizerParamGroup> result;
  for (const ParamGroup& group : groups) {
    auto own = group_options(group, options);
    if (group.weight_decay) own->weight_decay(*group.weight_decay);
    result.emplace_back(group.params, std::move(own));
  }
  return result;
}

/// libtorch 2.15 takes an option of a group that equals libtorch's own default, such as a decay of 0, for one that is not
/// set, and puts the optimizer's in its place: so the groups get theirs again.
template <typename TorchOptions>
void keep_group_options(Optimizer& optimizer, const std::vector<ParamGroup>& groups, const TorchOptions& options) {
  const std::vector<OptimizerParamGroup> own = with_options(groups, options);
  for (size_t i = 0; i < own.size(); ++i) optimizer.param_groups()[i].set_options(own[i].options().clone());
}

std::vector<ParamGroup> one_group(std::vector<Tensor> params) {
  return {{.params = std::move(params)}};
}

/// A step: the loss, if there is a closure for it, then update(group) for each group.
template <typename Update>
Tensor step_groups(Optimizer& optimizer, const Optimizer::LossClosure& closure, const Update& update) {
  Tensor loss;
  if (closure) {
    const at::AutoGradMode with_grad(true);
    loss = closure();
  }
  const torch::NoGradGuard no_grad;
  for (OptimizerParamGroup& group : optimizer.param_groups()) update(group);
  return loss;
}

/// Zeros at first; what was loaded from elsewhere is brought into the parameter's order.
Tensor kept(const Tensor& param, const Tensor& old) {
  return old.defined() ? in_step_with(param, old) : torch::zeros_like(param);
}

template <typename State>
State& state_of(Optimizer& optimizer, const Tensor& param) {
  auto& state = optimizer.state()[param.unsafeGetTensorImpl()];
  if (!state) state = std::make_unique<State>();
  return static_cast<State&>(*state);
}

// --- SGD -----------------------------------------------------------------------------------------------------------

struct SgdCall {
  std::vector<Tensor> params, grads, momenta;
};

/// Adds the parameter's momentum to the call's list; whether the call is the momentum's first is in the call's key.
Tensor momentum_of(Optimizer& optimizer, const Tensor& param) {
  auto& state = state_of<torch::optim::SGDParamState>(optimizer, param);
  const Tensor& old = state.momentum_buffer();
  state.momentum_buffer(old.defined() ? in_step_with(param, old) : torch::empty_like(param));
  return state.momentum_buffer();
}

bool has_momentum(const Optimizer& optimizer, const Tensor& param) {
  const auto found = optimizer.state().find(param.unsafeGetTensorImpl());
  return found != optimizer.state().end() && found->second &&
         static_cast<const torch::optim::SGDParamState&>(*found->second).momentum_buffer().defined();
}

void step_sgd(Optimizer& optimizer, OptimizerParamGroup& group) {
  const auto& options = static_cast<const torch::optim::SGDOptions&>(group.options());
  const bool with_momentum = options.momentum() != 0;
  std::map<CallKey, SgdCall> calls;
  for (const Tensor& param : group.params()) {
    if (!param.grad().defined()) continue;
    const bool is_first = with_momentum && !has_momentum(optimizer, param);
    SgdCall& call = calls[call_key(param, is_first)];
    call.params.push_back(param);
    call.grads.push_back(in_step_with(param, param.grad()));
    if (with_momentum) call.momenta.push_back(momentum_of(optimizer, param));
  }
  for (auto& [key, call] : calls)
    at::_fused_sgd_(call.params, call.grads, call.momenta, options.weight_decay(), options.momentum(), options.lr(),
                    options.dampening(), options.nesterov(), /*maximize=*/false, /*is_first_step=*/std::get<3>(key));
}

// --- Adam and AdamW ------------------------------------------------------------------------------------------------

struct AdamCall {
  std::vector<Tensor> params, grads, averages, squares, largest;
};

template <typename State>
void add_parameter(AdamCall& call, State& state, const Tensor& param, bool amsgrad) {
  state.exp_avg(kept(param, state.exp_avg()));
  state.exp_avg_sq(kept(param, state.exp_avg_sq()));
  if (amsgrad) state.max_exp_avg_sq(kept(param, state.max_exp_avg_sq()));
  call.params.push_back(param);
  call.grads.push_back(in_step_with(param, param.grad()));
  call.averages.push_back(state.exp_avg());
  call.squares.push_back(state.exp_avg_sq());
  if (amsgrad) call.largest.push_back(state.max_exp_avg_sq());
}

/// `fused` is at::_fused_adam_ or at::_fused_adamw_. Parameters are split by their number of steps, mostly the same for
/// all: the kernels want it as a tensor for each parameter and only read it, so one tensor serves all of a call.
template <typename State, typename Options, typename Fused>
void step_adam(Optimizer& optimizer, OptimizerParamGroup& group, Fused fused) {
  const auto& options = static_cast<const Options&>(group.options());
  std::map<CallKey, AdamCall> calls;
  for (const Tensor& param : group.params()) {
    if (!param.grad().defined()) continue;
    auto& state = state_of<State>(optimizer, param);
    state.step(state.step() + 1);
    add_parameter(calls[call_key(param, state.step())], state, param, options.amsgrad());
  }
  const auto [beta1, beta2] = options.betas();
  for (auto& [key, call] : calls) {
    const Tensor steps = torch::full({}, std::get<3>(key), call.params[0].options().dtype(torch::kFloat));
    const std::vector<Tensor> each(call.params.size(), steps);
    fused(call.params, call.grads, call.averages, call.squares, call.largest, each, options.lr(), beta1, beta2,
          options.weight_decay(), options.eps(), options.amsgrad(), /*maximize=*/false);
  }
}

/// The two kernels have overloads, which cannot be passed as they are.
constexpr auto kFusedAdam = [](auto&&... arguments) { at::_fused_adam_(arguments...); };
constexpr auto kFusedAdamW = [](auto&&... arguments) { at::_fused_adamw_(arguments...); };

// --- RMSProp -------------------------------------------------------------------------------------------------------

void update(const Tensor& param, torch::optim::RMSpropParamState& state, const torch::optim::RMSpropOptions& options) {
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

void step_rmsprop(Optimizer& optimizer, OptimizerParamGroup& group) {
  const auto& options = static_cast<const torch::optim::RMSpropOptions&>(group.options());
  for (const Tensor& param : group.params())
    if (param.grad().defined()) update(param, state_of<torch::optim::RMSpropParamState>(optimizer, param), options);
}

void clear(Tensor& grad, bool set_to_none, std::map<CallKey, std::vector<Tensor>>& to_zero) {
  if (!grad.defined()) return;
  if (set_to_none && !grad.is_view()) {
    grad.reset();
  } else {
    to_zero[call_key(grad)].push_back(grad.detach());
  }
}

}  // namespace

void zero_grad(const std::vector<Tensor>& parameters, bool set_to_none) {
  torch::NoGradGuard no_grad;
  std::map<CallKey, std::vector<Tensor>> to_zero;
  for (const Tensor& parameter : parameters) clear(parameter.mutable_grad(), set_to_none, to_zero);
  for (auto& [key, grads] : to_zero) at::_foreach_zero_(grads);
}

void zero_grad(Optimizer& optimizer, bool set_to_none) {
  zero_grad(parameters_of(optimizer), set_to_none);
}

void set_lr(Optimizer& optimizer, double lr) {
  for (OptimizerParamGroup& group : optimizer.param_groups()) group.options().set_lr(lr);
}

double get_lr(const Optimizer& optimizer) {
  if (optimizer.param_groups().empty()) throw UsageError("optim::get_lr: the optimizer has no parameters");
  return optimizer.param_groups()[0].options().get_lr();
}

std::vector<Tensor> parameters_of(const Optimizer& optimizer) {
  std::vector<Tensor> all;
  for (const OptimizerParamGroup& group : optimizer.param_groups())
    all.insert(all.end(), group.params().begin(), group.params().end());
  return all;
}

SGD::SGD(std::vector<Tensor> params, const SgdOptions& options) : SGD(one_group(std::move(params)), options) {}
SGD::SGD(const std::vector<ParamGroup>& groups, const SgdOptions& options)
    : torch::optim::SGD(with_options(groups, to_torch(options)), to_torch(options)) {
  keep_group_options(*this, groups, to_torch(options));
}

Momentum::Momentum(std::vector<Tensor> params, const MomentumOptions& options)
    : SGD(std::move(params), to_sgd(options)) {}
Momentum::Momentum(const std::vector<ParamGroup>& groups, const MomentumOptions& options)
    : SGD(groups, to_sgd(options)) {}

Adam::Adam(std::vector<Tensor> params, const AdamOptions& options) : Adam(one_group(std::move(params)), options) {}
Adam::Adam(const std::vector<ParamGroup>& groups, const AdamOptions& options)
    : torch::optim::Adam(with_options(groups, to_torch(options)), to_torch(options)) {
  keep_group_options(*this, groups, to_torch(options));
}

AdamW::AdamW(std::vector<Tensor> params, const AdamWOptions& options) : AdamW(one_group(std::move(params)), options) {}
AdamW::AdamW(const std::vector<ParamGroup>& groups, const AdamWOptions& options)
    : torch::optim::AdamW(with_options(groups, to_torch(options)), to_torch(options)) {
  keep_group_options(*this, groups, to_torch(options));
}

RMSProp::RMSProp(std::vector<Tensor> params, const RmsPropOptions& options)
    : RMSProp(one_group(std::move(params)), options) {}
RMSProp::RMSProp(const std::vector<ParamGroup>& groups, const RmsPropOptions& options)
    : torch::optim::RMSprop(with_options(groups, to_torch(options)), to_torch(options)) {
  keep_group_options(*this, groups, to_torch(options));
}

Tensor SGD::step(LossClosure closure) {
  if (!is_on(Lever::fused_optimizers)) return torch::optim::SGD::step(std::move(closure));
  return step_groups(*this, closure, [this](auto& group) { step_sgd(*this, group); });
}

Tensor Adam::step(LossClosure closure) {
  if (!is_on(Lever::fused_optimizers)) return torch::optim::Adam::step(std::move(closure));
  return step_groups(*this, closure, [this](auto& group) {
    step_adam<torch::optim::AdamParamState, torch::optim::AdamOptions>(*this, group, kFusedAdam);
  });
}

Tensor AdamW::step(LossClosure closure) {
  if (!is_on(Lever::fused_optimizers)) return torch::optim::AdamW::step(std::move(closure));
  return step_groups(*this, closure, [this](auto& group) {
    step_adam<torch::optim::AdamWParamState, torch::optim::AdamWOptions>(*this, group, kFusedAdamW);
  });
}

Tensor RMSProp::step(LossClosure closure) {
  return step_groups(*this, closure, [this](auto& group) { step_rmsprop(*this, group); });
}

}  // namespace trireme::optim
