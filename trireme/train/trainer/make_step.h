// Optimizer, AMP, EMA, Global.update_freq -> the Step that trains.
//
//   auto optimizer = make_optimizer(config, *net.trained());
//   train::Step step = make_step(config, net, ranks, *optimizer);
//
// Made after the network has its weights, its device and its precision (ready_network.h).
#pragma once

#include <memory>

#include "trireme/config/train_config.h"
#include "trireme/train/ranks.h"
#include "trireme/train/step.h"
#include "trireme/train/trainer/role_models.h"

namespace trireme::trainer {

/// fp16 on a GPU and bf16 on a CPU unless AMP.dtype says otherwise.
AmpOptions amp_of(const config::Amp& amp, torch::DeviceType device);

/// The optimizer must outlive the result. Besides what Step knows: L1 decay, added to the clipped gradients as in
/// Paddle.
train::Step make_step(const config::TrainConfig& config, const RoleModels& net, const train::Ranks& ranks,
                      torch::optim::Optimizer& optimizer);

}  // namespace trireme::trainer
