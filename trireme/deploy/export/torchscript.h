// A traced graph -> a TorchScript module, loadable by torch::jit::load and Python's torch.jit.load.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include "trireme/deploy/export/traced.h"

namespace trireme::deploy {

/// forward(x) is the graph: it returns a tensor, or a tuple when the network has several outputs. Weights are parameters
/// under the network's own names, so that the module can be moved to another device and its state_dict() read. It takes
/// any number of images; shares no memory with `traced` but weights.
torch::jit::Module to_torchscript(const Traced& traced);

}  // namespace trireme::deploy
