#include "trireme/train/trainer/make_optimizer.h"

#include <torch/torch.h>

#include <algorithm>

#include "trireme/config/check.h"
#include "trireme/core/text.h"
#include "trireme/models/classifier.h"
#include "trireme/optim/optimizers.h"

namespace trireme::trainer {
namespace {

bool is_decoupled(const config::Optimizer& options) {
  return options.name == "AdamW";
}

double decay_of(const config::Optimizer& options) {
  return options.regularizer.kind == config::RegularizerKind::l2 ? options.regularizer.coeff : options.weight_decay;
}

void refuse_unknown(const config::Optimizer& options) {
  if (options.name == "Lamb")
    options.node.at("name").fail("Lamb is not supported; AdamW is the nearest, with a lower rate");
  if (is_decoupled(options) && options.regularizer.kind == config::RegularizerKind::l1)
    options.node.at("regularizer").fail("L1 goes with SGD, Momentum, Adam and RMSProp; AdamW takes weight_decay");
}

bool is_resnet(const config::Arch& arch) {
  return to_lower(arch.name).starts_with("resnet");
}

/// Whether all that is trained are ResNets.
bool trains_resnets(const config::Arch& arch) {
  if (!arch.is_distillation()) return is_resnet(arch);
  for (const config::DistilledModel& model : arch.models)
    if (!model.frozen && !is_resnet(model.arch)) return false;
  return true;
}

/// Of all classifiers that are trained: the one, or several with their roles before the names.
std::vector<models::LrFactor> lr_factors(const torch::nn::Module& trained) {
  std::vector<models::LrFactor> all;
  for (const auto& item : trained.named_modules("", /*include_self=*/true)) {
    const auto* classifier = item.value()->as<models::Classifier>();
    if (classifier == nullptr) continue;
    const std::string prefix = item.key().empty() ? "" : item.key() + ".";
    for (const models::LrFactor& one : classifier->lr_factors()) all.push_back({prefix + one.prefix, one.factor});
  }
  return all;
}

}  // namespace

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const config::Optimizer& options,
                                                        const std::vector<optim::ParamGroup>& groups) {
  refuse_unknown(options);
  config::check_choice(options.node.at("name"), options.name, {"SGD", "Momentum", "Adam", "AdamW", "RMSProp"});
  const double decay = decay_of(options);
  const double lr = options.lr.learning_rate;
  if (options.name == "SGD")
    return std::make_unique<optim::SGD>(groups, optim::SgdOptions{.lr = lr, .weight_decay = decay});
  if (options.name == "Momentum")
    return std::make_unique<optim::Momentum>(
        groups,
        optim::MomentumOptions{
            .lr = lr, .momentum = options.momentum, .weight_decay = decay, .use_nesterov = options.use_nesterov});
  if (options.name == "RMSProp")
    return std::make_unique<optim::RMSProp>(groups, optim::RmsPropOptions{.lr = lr,
                                                                          .rho = options.rho,
                                                                          .epsilon = options.epsilon,
                                                                          .momentum = options.momentum,
                                                                          .weight_decay = decay});
  if (options.name == "Adam")
    return std::make_unique<optim::Adam>(groups, optim::AdamOptions{.lr = lr,
                                                                    .beta1 = options.beta1,
                                                                    .beta2 = options.beta2,
                                                                    .epsilon = options.epsilon,
                                                                    .weight_decay = decay});
  return std::make_unique<optim::AdamW>(
      groups,
      optim::AdamWOptions{
          .lr = lr, .beta1 = options.beta1, .beta2 = options.beta2, .epsilon = options.epsilon, .weight_decay = decay});
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const config::TrainConfig& config,
                                                        const torch::nn::Module& trained) {
  return make_optimizer(config.optimizer, param_groups(config, trained));
}

std::vector<optim::ParamGroup> param_groups(const config::TrainConfig& config, const torch::nn::Module& trained) {
  return optim::decay_groups(trained, no_decay(config), [all = lr_factors(trained)](const std::string& name) {
    const auto found = std::ranges::find_if(all, [&](const auto& one) { return name.starts_with(one.prefix); });
    return found == all.end() ? 1.0 : found->factor;
  });
}

optim::NoDecay no_decay(const config::TrainConfig& config) {
  return {.names = config.optimizer.no_weight_decay_name,
          .norm = !is_decoupled(config.optimizer) && !trains_resnets(config.arch),
          .one_dim = config.optimizer.one_dim_param_no_weight_decay};
}

}  // namespace trireme::trainer
