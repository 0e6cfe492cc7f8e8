// Clipping by the norm of all gradients together.
//
//   torch::Tensor norm = clip_grad_norm(model->parameters(), 1.0);        // between backward() and step()
//
// With a GradScaler: after its unscale_(). With DataParallel the gradients are equal on all ranks, and so is the norm.
// With ShardedDataParallel and Pipeline, for model.parameters(), it is the norm over all ranks' parts, and every rank must
// call it.
#pragma once

#include <torch/types.h>

#include <vector>

namespace trireme::optim {

struct ClipOptions {
  /// Throws UsageError when the norm is infinite or not a number. Waits for the GPU; without it nothing waits.
  bool error_if_nonfinite = false;
};

/// The 2-norm over all gradients, before clipping, as a tensor of one float (double for double gradients) on the device
/// of the first. Gradients are multiplied by max_norm / max(norm, max_norm): left exactly as they are when short
/// enough. Parameters without gradient do not count; without any gradient the norm is 0.
torch::Tensor clip_grad_norm(const std::vector<torch::Tensor>& parameters, double max_norm, ClipOptions options = {});
/// The same norm, nothing changed.
torch::Tensor grad_norm(const std::vector<torch::Tensor>& parameters);

}  // namespace trireme::optim
