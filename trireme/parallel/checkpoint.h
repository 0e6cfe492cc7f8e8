// Memory for time: what a part of a model has computed is thrown away after forward and computed again in backward.
//
//   x = checkpoint([&](torch::Tensor x) { return blocks[i]->forward(x); }, x);
//
// libtorch has this in Python only. Gradients are those of the plain call; parameters used inside get theirs too, also
// under DataParallel. Random layers inside (dropout) draw the same numbers both times, on the CPU and on CUDA.
#pragma once

#include <torch/types.h>

#include <functional>

namespace trireme {

/// `f` must give the same result when called again: no counters, no changes from outside. Without gradient mode it is
/// just called.
torch::Tensor checkpoint(const std::function<torch::Tensor(torch::Tensor)>& f, const torch::Tensor& x);

/// Calls `f` when the backward under way has ended, also from inside the backward of a checkpoint, which is a backward
/// of its own to the engine: then it is the outer one that counts. For the library itself.
void at_end_of_backward(std::function<void()> f);

/// Whether the backward under way is one of a checkpoint or will come to one: then its graph does not show all that it
/// will reach. For the library itself.
bool backward_has_checkpoints();

}  // namespace trireme
