// Sequence parallelism: between the blocks of a transformer each rank has its part of the sequence.
//
//   x = nn::split_sequence(x, group);                       // [batch, sequence / ranks, width]; or an embedding's option
//   x = x + down(torch::gelu(up(norm(x))));                 // up, norm and down made with sequence_parallel = true
//   x = nn::gather_sequence(x, group);                      // whole again
//
// A RowParallelLinear then gives each rank its part of the sum, by a reduce_scatter in place of an all_reduce, and the next
// ColumnParallelLinear gathers the parts: as many bytes, but what lies between is computed and kept once, not on every rank.
//
// A parameter that is used on a part of the sequence gets the gradient of that part. The gradients of the ranks must be
// summed: ParallelLayerNorm does so, and sequence_shared() for a parameter of your own. Where a part ends (in a
// ColumnParallelLinear or in gather_sequence) a parameter without it is a UsageError; not seen is one inside of a
// checkpoint() that ends before that.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>

#include "trireme/comm/group.h"

namespace trireme::nn {

/// This rank's part of what all ranks have, and the whole of what each has a part of. UsageError with both numbers for a
/// sequence that the ranks do not divide.
torch::Tensor split_sequence(const torch::Tensor& x, const Group& group);
torch::Tensor gather_sequence(const torch::Tensor& x, const Group& group);

/// The parameter, to be used on a part of the sequence: its gradients are summed over the ranks.
torch::Tensor sequence_shared(const torch::Tensor& parameter, const Group& group);

/// UsageError with both numbers unless x has a sequence that the ranks divide.
void require_sequence(const torch::Tensor& x, const Group& group);

struct ParallelLayerNormOptions {
  bool sequence_parallel = false;  ///< the input is this rank's part of the sequence
  double epsilon = 1e-5;
};

/// Layer normalisation over the last dimension. Its parameters are the same on every rank, as are their gradients.
class ParallelLayerNormImpl : public torch::nn::Module {
 public:
  ParallelLayerNormImpl(int64_t width, const Group& group, const ParallelLayerNormOptions& options = {});
  torch::Tensor forward(const torch::Tensor& x);

  torch::Tensor weight;
  torch::Tensor bias;

 private:
  Group group_;
  ParallelLayerNormOptions options_;
};
TORCH_MODULE(ParallelLayerNorm);

}  // namespace trireme::nn
