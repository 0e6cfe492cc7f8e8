// A block of a transformer whose weights are split over the ranks of a group.
//
//   nn::ParallelTransformerBlock block(nn::TransformerBlockOptions{.width = 512, .heads = 8}, mesh["model"]);
//   y = block(x);                                            // [batch, sequence, 512]
//
//   x + project(attention(query, key, value of norm(x)))     each rank has heads / ranks of the heads
//   x + down(gelu(up(norm(x))))                              each rank has hidden / ranks of the columns
//
// Two sums over the ranks in forward, two in backward; with sequence_parallel a gather and a reduce_scatter in place of
// each, and x and y are this rank's part of the sequence (sequence.h).
//
// Dropout is equal on all ranks where they have the same activations, else different (random.h): the ranks of the group must
// draw the same random numbers, which each training forward with dropout checks.
#pragma once

#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>

#include "trireme/comm/group.h"
#include "trireme/nn/tensor_module.h"
#include "trireme/parallel/tensor/layers.h"
#include "trireme/parallel/tensor/sequence.h"

namespace trireme::nn {

struct TransformerBlockOptions {
  int64_t width = 0;
  int64_t heads = 0;
  int64_t hidden = 0;  ///< width of the MLP; 0: 4 * width
  double dropout = 0;  ///< of the attention weights, and of what each half adds
  bool causal = true;  ///< a token sees the tokens before it and itself only
  bool sequence_parallel = false;
  double epsilon = 1e-5;  ///< of the norms
};

class ParallelTransformerBlockImpl : public TensorModule {
 public:
  /// UsageError with both numbers when heads do not divide the width, or ranks do not divide the heads or `hidden`.
  ParallelTransformerBlockImpl(const TransformerBlockOptions& options, const Group& group);
  torch::Tensor forward(const torch::Tensor& x) override;
  /// Weights from N(0, std^2), those of `project` and `down` from N(0, residual_std^2), biases 0.
  void reset_normal(double std, double residual_std);

  ParallelLayerNorm attention_norm = nullptr;
  ColumnParallelLinear qkv = nullptr;  ///< outputs are ordered [heads, 3, width / heads]: a rank has whole heads
  RowParallelLinear project = nullptr;
  ParallelLayerNorm mlp_norm = nullptr;
  ColumnParallelLinear up = nullptr;
  RowParallelLinear down = nullptr;

 private:
  torch::Tensor attention(const torch::Tensor& x);
  torch::Tensor dropped(const torch::Tensor& x) const;

  TransformerBlockOptions options_;
  Group group_;
};
TORCH_MODULE(ParallelTransformerBlock);

/// Dropout of activations between the blocks: with sequence_parallel of this rank's part, else the same on every rank.
torch::Tensor parallel_dropout(const torch::Tensor& x, double dropout, bool sequence_parallel, const Group& group);

}  // namespace trireme::nn
