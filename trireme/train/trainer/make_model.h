// The section Arch -> its models, with the weights they are to begin with.
//
//   RoleModels net = make_network(config.arch);
//   load_weights(*net.main(), "output/ResNet50/best_model", {.what = "Global.pretrained_model"});
//
// Weights are safetensors files: a file, a name without its .safetensors, or a checkpoint's folder. `pretrained: True`
// looks for <Arch>.safetensors in $TRIREME_WEIGHTS, with use_ssld for <Arch>_ssld.safetensors first.
#pragma once

#include <filesystem>
#include <string>

#include "trireme/config/arch_config.h"
#include "trireme/train/trainer/role_models.h"

namespace trireme::trainer {

struct NetworkNeeds {
  bool only_main = false;    ///< for evaluation: without teachers
  bool own_weights = false;  ///< the trained models' come from elsewhere: `pretrained` is for teachers only
};

/// UsageError with file and line for an unknown model or argument, and for weights that are not there or do not fit.
RoleModels make_network(const config::Arch& arch, const NetworkNeeds& needs = {});

struct WeightsUse {
  std::string what;         ///< the key that named the file, for messages
  bool new_classes = true;  ///< tensors of another shape (a last layer for other classes) keep their random start
};
void load_weights(torch::nn::Module& module, const std::string& path, const WeightsUse& use);

/// The file that a user's path means. UsageError when there is none.
std::filesystem::path weights_file(const std::string& path, const std::string& what);

}  // namespace trireme::trainer
