// The state of an optimizer as tensors by name, so that it goes into a checkpoint beside the model.
//
//   TensorMap state = optimizer_state(adam, net->named_parameters());       // adam/state/fc.weight/exp_avg …
//   load_optimizer_state(other_adam, net->named_parameters(), state);       // bit for bit the same
//
// For torch's SGD, Adam, AdamW, RMSprop, Adagrad and every optimizer that keeps their options and state types. Entries
// go by parameter names, so neither the order of the parameters nor their groups matter: a group gets the options that its
// parameters had. (State that was saved before groups were known by parameters goes by the number of the group.) Not
// while another thread steps the optimizer.
#pragma once

#include <torch/optim/optimizer.h>

#include "trireme/io/safetensors.h"

namespace trireme::io {

/// `parameters` must name every parameter of the optimizer. The state's tensors are the optimizer's own: they change as
/// it steps. Throws UsageError for an optimizer of another kind.
TensorMap optimizer_state(const torch::optim::Optimizer& optimizer, const TensorMap& parameters);

/// State and options (learning rate, momentum) of each group. Throws UsageError when the tensors are another kind of
/// optimizer's, name parameters that are not here or have another shape, or gave the parameters of a group different
/// options: then nothing has changed.
void load_optimizer_state(torch::optim::Optimizer& optimizer, const TensorMap& parameters, const TensorMap& tensors);

/// For the states of several optimizers, each of a part of one model, that become one: adds `first` to the numbers of the
/// groups, so that no two are alike; and makes one group of those that have the same options.
TensorMap with_group_numbers_from(int64_t first, const TensorMap& tensors);
TensorMap with_equal_groups_merged(const TensorMap& tensors);

}  // namespace trireme::io
