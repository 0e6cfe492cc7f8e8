// The state of an optimizer as tensors by name, so that it goes into a checkpoint beside the model.
//
//   TensorMap state = optimizer_state(adam, net->named_parameters());       // adam/state/fc.weight/exp_avg …
//   load_optimizer_state(other_adam, net->named_parameters(), state);       // bit for bit the same
//
// For torch's SGD, Adam, AdamW, RMSprop, Adagrad and every optimizer that keeps their options and state types. Entries
// go by parameter names, so the order of the parameters does not matter; groups go by their number. Not while another
// thread steps the optimizer.
#pragma once

#include <torch/optim/optimizer.h>

#include "trireme/io/safetensors.h"

namespace trireme::io {

/// `parameters` must name every parameter of the optimizer. The state's tensors are the optimizer's own: they change as
/// it steps. Throws UsageError for an optimizer of another kind.
TensorMap optimizer_state(const torch::optim::Optimizer& optimizer, const TensorMap& parameters);

/// State and options (learning rate, momentum) of each group. Throws UsageError when the tensors are another kind of
/// optimizer's, have another number of groups, or name parameters that are not here or have another shape: then nothing
/// has changed.
void load_optimizer_state(torch::optim::Optimizer& optimizer, const TensorMap& parameters, const TensorMap& tensors);

}  // namespace trireme::io
