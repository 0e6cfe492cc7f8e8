// The ranks and the network of a configuration as a run needs them: with weights, on the device, in its precision.
//
//   train::Ranks ranks = ready_ranks(config.global);
//   RoleModels net = ready_to_train(config, ranks, {.own_weights = false});      // shared with the other ranks
//   RoleModels other = ready_to_evaluate(config, ranks);                         // the main model alone
//
// UsageError with file and line for what PaddleClas can do and Trireme cannot, and as make_model.h says. Called by
// every rank.
#pragma once

#include "trireme/config/train_config.h"
#include "trireme/train/ranks.h"
#include "trireme/train/trainer/role_models.h"

namespace trireme::trainer {

/// The ranks that train together, each on its device (Global.device). UsageError that names `-o Global.device=cpu` when
/// the file wants a GPU and there is none.
train::Ranks ready_ranks(const config::Global& global);

/// On a GPU: cuDNN tries all its convolutions on the first batch of each shape, unless FLAGS_cudnn_exhaustive_search=0.
/// A run has few shapes, so the trials pay.
void choose_convolutions(c10::Device device);

struct InitialWeights {
  bool own_weights = false;  ///< a checkpoint has them: Arch.pretrained is not looked at
};

RoleModels ready_to_train(const config::TrainConfig& config, train::Ranks& ranks, InitialWeights initial);
/// With the weights of Global.pretrained_model.
RoleModels ready_to_evaluate(const config::TrainConfig& config, const train::Ranks& ranks);

}  // namespace trireme::trainer
