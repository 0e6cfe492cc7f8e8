// The section Optimizer -> an optimizer, which parameters it lets decay, and the factors of their rates.
//
//   auto optimizer = make_optimizer(config, *net.trained());
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <vector>

#include "trireme/config/train_config.h"
#include "trireme/optim/param_groups.h"

namespace trireme::trainer {

/// UsageError with file and line for an optimizer or a regularizer that Trireme does not have.
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const config::Optimizer& options,
                                                        const std::vector<optim::ParamGroup>& groups);

/// The trained model's parameters by no_decay() and by Arch.lr_mult_list.
std::vector<optim::ParamGroup> param_groups(const config::TrainConfig& config, const torch::nn::Module& trained);

/// Of param_groups().
std::unique_ptr<torch::optim::Optimizer> make_optimizer(const config::TrainConfig& config,
                                                        const torch::nn::Module& trained);

/// What the file says. Besides, L2 spares normalisations, as PaddleClas' networks ask for; only its ResNets do not.
optim::NoDecay no_decay(const config::TrainConfig& config);

}  // namespace trireme::trainer
