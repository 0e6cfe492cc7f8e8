#include "trireme/train/trainer/updater.h"

#include <torch/torch.h>

#include "trireme/optim/clip.h"
#include "trireme/optim/optimizers.h"
#include "trireme/train/trainer/make_optimizer.h"

namespace trireme::trainer {
namespace {

optim::GradScaler::Options scaler_options(const config::Amp& amp, const Precision& precision, const Team& team) {
  return {.enabled = precision.low && precision.dtype == torch::kHalf,
          .init_scale = amp.scale_loss,
          .dynamic = amp.use_dynamic_loss_scaling,
          .agree = [&team](torch::Tensor& found) { team.largest(found); }};
}

/// Paddle's L1Decay: the gradient of coeff * |w|, added after clipping.
void add_l1(const std::vector<torch::Tensor>& parameters, double coeff) {
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& parameter : parameters)
    if (parameter.grad().defined()) parameter.mutable_grad().add_(parameter.sign(), coeff);
}

/// Those that weight decay does not spare.
std::vector<torch::Tensor> decaying(const std::vector<optim::ParamGroup>& groups) {
  std::vector<torch::Tensor> all;
  for (const optim::ParamGroup& group : groups)
    if (!group.weight_decay) all.insert(all.end(), group.params.begin(), group.params.end());
  return all;
}

}  // namespace

Precision precision_of(const config::Amp& amp, torch::DeviceType device) {
  Precision precision{.low = amp.use_amp, .low_weights = amp.use_amp && amp.level == "O2", .device = device};
  precision.low_eval = precision.low_weights || (amp.use_amp && amp.use_fp16_test);
  const bool half = amp.node.has("dtype") ? amp.dtype == "float16" : device == torch::kCUDA;
  precision.dtype = half ? torch::kHalf : torch::kBFloat16;
  return precision;
}

Updater::Updater(const config::TrainConfig& config, const Network& net, const Team& team)
    : precision_(precision_of(config.amp, team.device().type())),
      module_(net.trained()),
      clip_norm_(config.optimizer.clip_norm) {
  auto groups = optim::decay_groups(*module_, no_decay(config));
  if (precision_.low_weights) {
    masters_.emplace(module_->parameters());
    groups = masters_->groups(std::move(groups));
  }
  if (config.optimizer.regularizer.kind == config::RegularizerKind::l1) {
    l1_ = config.optimizer.regularizer.coeff;
    decaying_ = decaying(groups);
  }
  optimizer_ = make_optimizer(config.optimizer, groups);
  scaler_.emplace(scaler_options(config.amp, precision_, team));
  if (config.ema.enabled) ema_ = std::make_unique<optim::Ema>(*module_, optim::Ema::Options{.decay = config.ema.decay});
}

optim::Autocast Updater::autocast() const {
  return optim::Autocast({.device = precision_.device, .dtype = precision_.dtype, .enabled = precision_.low});
}

void Updater::backward(const torch::Tensor& loss) {
  scaler_->scale(loss).backward();
}

bool Updater::step(double lr) {
  optim::set_lr(*optimizer_, lr);
  if (masters_) masters_->take_gradients();
  if (clip_norm_ || l1_ != 0) scaler_->unscale_(*optimizer_);
  if (clip_norm_) optim::clip_grad_norm(optim::parameters_of(*optimizer_), *clip_norm_);
  if (l1_ != 0) add_l1(decaying_, l1_);
  const bool stepped = scaler_->step(*optimizer_);
  scaler_->update();
  if (masters_) masters_->write_back();
  optim::zero_grad(*optimizer_);
  optim::zero_grad(module_->parameters());
  if (ema_ && stepped) ema_->update();
  return stepped;
}

}  // namespace trireme::trainer
