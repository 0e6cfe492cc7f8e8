// The block of MobileNetV3 and its relatives in one pass: 1x1 convolution (expand), depthwise convolution, squeeze and
// excitation, 1x1 convolution (project), each with its batch normalisation and activation, and the shortcut.
//
// Only the raw outputs of the convolutions are stored. Normalisation and activation are applied where they are read, to
// as much of the batch as fits the caches, and once more in backward. That reads and writes about a third of the memory
// that the layers one by one do, and memory is what such a network waits for.
//
//   if (fused::can_fuse(block, x)) return fused::inverted_residual(block, x);
#pragma once

#include <torch/types.h>

#include "trireme/nn/layers.h"

namespace trireme::nn::fused {

/// The layers of one block; they keep their parameters and running statistics.
struct InvertedResidual {
  ConvBnUnit* expand = nullptr;  ///< null: the depthwise convolution reads the block's input
  ConvBnUnit* depthwise = nullptr;
  SqueezeExciteImpl* squeeze = nullptr;  ///< null: none
  ConvBnUnit* project = nullptr;
  bool shortcut = false;  ///< the block's input is added to its output
};

/// Whether inverted_residual() gives what the layers one by one would: in training, float on the CPU, channels last,
/// kernels of 3 or 5, outside of autocast and of tracing, and unless TRIREME_FUSED=0
/// or TRIREME_WITHOUT=blocks.
bool can_fuse(const InvertedResidual& block, const torch::Tensor& x);

/// Trains the block: updates its running statistics; gradients flow to x and to all parameters, once (a second
/// derivative is a UsageError).
torch::Tensor inverted_residual(const InvertedResidual& block, const torch::Tensor& x);

}  // namespace trireme::nn::fused
