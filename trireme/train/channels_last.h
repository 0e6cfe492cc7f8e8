// Networks that take images compute channels last: their weights of four dimensions (nn::to_channels_last) and their
// inputs of four dimensions lie in the order in which convolutions are fastest, and which the fused layers ask for. The
// numbers are the same but for rounding. Internal to this folder and its trainer.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <memory>
#include <utility>
#include <vector>

#include "trireme/train/network.h"

namespace trireme::train {

/// Whether TRIREME_CHANNELS_LAST leaves it on.
bool may_use_channels_last();

/// A tensor of four dimensions channels last; any other one as it is.
torch::Tensor to_channels_last(const torch::Tensor& images);

/// Lays the weights out, and returns the forward() that lays its inputs out; its outputs are contiguous. Before the
/// optimizer's first step. Changes nothing for a module without such weights, and for one that is split over the ranks.
///
/// Some networks cannot work so: view() refuses what convolutions return then. When that ends the first forward pass,
/// the weights, buffers and random number generators go back, one line says why, and the pass runs again. Later, and
/// when the module has been split in the meantime, it is a UsageError that names the cure.
Forward with_channels_last(const std::shared_ptr<torch::nn::Module>& module, Forward forward);

/// Undoes what with_channels_last() has done to the weights. Not for a module that is split.
void to_usual_order(torch::nn::Module& module);

/// While it lives, the weights lie in the usual order, then where they were: to run a network whose first pass may be
/// still to come. Nothing may write to them meanwhile. Does nothing for a module that is split.
class UsualOrder {
 public:
  explicit UsualOrder(const torch::nn::Module& module);
  ~UsualOrder();
  UsualOrder(const UsualOrder&) = delete;
  UsualOrder& operator=(const UsualOrder&) = delete;

 private:
  std::vector<std::pair<torch::Tensor, torch::Tensor>> before_;  // parameter, its data
};

}  // namespace trireme::train
