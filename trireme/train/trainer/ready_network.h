// The network of a configuration as a run needs it: with its weights, on its device, in its precision.
//
//   Network net = ready_to_train(config, ranks, {.own_weights = false});      // shared with the other ranks
//   Network other = ready_to_evaluate(config, ranks);                         // the main model alone
//
// UsageError with file and line for what PaddleClas can do and Trireme cannot, and as make_model.h says. Called by
// every rank.
#pragma once

#include "trireme/config/train_config.h"
#include "trireme/train/ranks.h"
#include "trireme/train/trainer/network.h"

namespace trireme::trainer {

struct InitialWeights {
  bool own_weights = false;  ///< a checkpoint has them: Arch.pretrained is not looked at
};

Network ready_to_train(const config::TrainConfig& config, train::Ranks& ranks, InitialWeights initial);
/// With the weights of Global.pretrained_model.
Network ready_to_evaluate(const config::TrainConfig& config, const train::Ranks& ranks);

}  // namespace trireme::trainer
