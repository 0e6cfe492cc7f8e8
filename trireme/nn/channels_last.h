// The memory order in which convolutions are fastest, on the CPU and on GPUs, and which the fused layers ask for.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

namespace trireme::nn {

/// Lays all parameters of four dimensions, the weights of 2d convolutions, out channels last; what reads them computes
/// the same. Gradients, optimizer
/// states and checkpoints need nothing else. Before or after DataParallel, before the optimizer's first step. Pictures
/// should be channels last too: x.contiguous(torch::MemoryFormat::ChannelsLast).
void to_channels_last(torch::nn::Module& module);

}  // namespace trireme::nn
