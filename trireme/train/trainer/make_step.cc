#include "trireme/train/trainer/make_step.h"

#include <torch/torch.h>

#include "trireme/train/trainer/make_optimizer.h"

namespace trireme::trainer {
namespace {

/// Paddle's L1Decay: adds the gradient of coeff * |w|, except for parameters that weight decay spares.
void add_l1(const torch::optim::Optimizer& optimizer, const std::vector<bool>& decays, double coeff) {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < decays.size(); ++i) {
    if (!decays[i]) continue;
    for (const torch::Tensor& parameter : optimizer.param_groups()[i].params())
      if (parameter.grad().defined()) parameter.mutable_grad().add_(parameter.sign(), coeff);
  }
}

std::function<void()> l1_decay(const config::TrainConfig& config, const RoleModels& net,
                               torch::optim::Optimizer& optimizer) {
  const auto& regularizer = config.optimizer.regularizer;
  if (regularizer.kind != config::RegularizerKind::l1 || regularizer.coeff == 0) return {};
  std::vector<bool> decays;
  for (const optim::ParamGroup& group : param_groups(config, *net.trained())) decays.push_back(!group.weight_decay);
  return [&optimizer, decays, coeff = regularizer.coeff] { add_l1(optimizer, decays, coeff); };
}

}  // namespace

AmpOptions amp_of(const config::Amp& amp, torch::DeviceType device) {
  const bool half = amp.node.has("dtype") ? amp.dtype == "float16" : device == torch::kCUDA;
  return {.level = !amp.use_amp        ? AmpLevel::O0
                   : amp.level == "O2" ? AmpLevel::O2
                                       : AmpLevel::O1,
          .dtype = half ? torch::kHalf : torch::kBFloat16,
          .scaler = {.init_scale = amp.scale_loss, .dynamic = amp.use_dynamic_loss_scaling}};
}

train::Step make_step(const config::TrainConfig& config, const RoleModels& net, const train::Ranks& ranks,
                      torch::optim::Optimizer& optimizer) {
  return train::Step({net.trained(), ranks.sync()}, optimizer,
                     {.amp = amp_of(config.amp, ranks.device().type()),
                      .clip_norm = config.optimizer.clip_norm,
                      .accumulate = config.global.update_freq,
                      .ema_decay = config.ema.enabled ? std::optional(config.ema.decay) : std::nullopt,
                      .before_update = l1_decay(config, net, optimizer)});
}

}  // namespace trireme::trainer
