// Groups of parameters with and without weight decay, and with a learning rate of their own.
//
//   optim::AdamW adam(decay_groups(*model, {.names = {"norm", "bias"}}), {.lr = 1e-3, .weight_decay = 0.05});
//   optim::Momentum sgd(decay_groups(*model, {.norm = true}), {.lr = 0.8, .weight_decay = 3e-5});
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trireme::optim {

/// Parameters that an optimizer treats alike.
struct ParamGroup {
  std::vector<torch::Tensor> params = {};
  std::optional<double> weight_decay = {};  ///< instead of the optimizer's own
  double lr_factor = 1;  ///< what set_lr() sets is multiplied by it; 0: the parameters stay as they are
};

/// Which parameters have no weight decay: those that meet any of these.
struct NoDecay {
  /// Its name contains one of them (PaddleClas' no_weight_decay_name, split at spaces).
  std::vector<std::string> names = {};
  bool norm = false;     ///< it belongs to a module whose type is named …Norm…: BatchNorm2d, LayerNorm, ours
  bool bias = false;     ///< the last part of its name is "bias"
  bool one_dim = false;  ///< it has one dimension (PaddleClas' one_dim_param_no_weight_decay)
};

/// The factor of the learning rate of a parameter, by its name.
using LrFactorOf = std::function<double(const std::string& name)>;

/// The trainable parameters in the order of the model: those that decay as the optimizer says, then those that do not,
/// each with a group for every factor. A group without parameters is left out; a parameter that two modules share is
/// taken once. Of a model that ShardedDataParallel has split, this rank's pieces. Throws UsageError for a negative factor.
std::vector<ParamGroup> decay_groups(const torch::nn::Module& module, const NoDecay& spared,
                                     const LrFactorOf& lr_factor_of = {});

/// Whether a module is a normalisation, told by the name of its type.
bool is_norm(const torch::nn::Module& module);

}  // namespace trireme::optim
