// Layers whose weights are split over the ranks of a group: tensor parallelism, as Megatron-LM does it.
//
//   const Group& group = mesh["model"];
//   nn::ColumnParallelLinear up(512, 2048, group, nn::ColumnParallelOptions{.gather_output = false});
//   nn::RowParallelLinear down(2048, 512, group, nn::RowParallelOptions{.input_is_parallel = true});
//   y = down(torch::gelu(up(x)));                     // x and y whole on every rank; one sum in forward, one in backward
//
// Each rank holds one of as many equal parts. Weights begin as those of torch's own layer with the same random numbers:
// a seed gives the same model on any number of ranks. Every rank of the group makes the layer, with the same random numbers
// (torch::manual_seed); others are a UsageError.
//
// Norms of gradients (optim::clip_grad_norm), loss scaling and checkpoints know the parts: checkpoints hold whole tensors
// and fit any number of ranks. DataParallel goes over another axis of the mesh; over this one it is refused.
//
// Every rank of the group gives the same input at the same places; layers compare theirs in calls 1, 2, 4, 8 and so on, and
// other inputs are a UsageError. Parameters that are not split get the same gradients on every rank. A size that the ranks
// do not divide is a UsageError with both numbers.
//
// With sequence_parallel the activations between a RowParallelLinear and the next ColumnParallelLinear, [batch, sequence,
// width], are split too: each rank has its part of the sequence, which saves their memory and the work on them (sequence.h).
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <memory>

#include "trireme/comm/group.h"

namespace trireme::optim {
struct SplitTensors;
}

namespace trireme::nn {

struct ColumnParallelOptions {
  bool bias = true;
  bool gather_output = true;       ///< false: each rank has its part of the outputs, for a RowParallelLinear
  bool sequence_parallel = false;  ///< the input is this rank's part of the sequence; the output is of the whole
};

/// Each rank has some of the outputs: `weight` is [out / ranks, in].
class ColumnParallelLinearImpl : public torch::nn::Module {
 public:
  ColumnParallelLinearImpl(int64_t in, int64_t out, const Group& group, const ColumnParallelOptions& options = {});
  torch::Tensor forward(const torch::Tensor& x);
  /// Weights from N(0, std^2), biases 0: with one seed the same layer on any number of ranks.
  void reset_normal(double std);

  torch::Tensor weight;
  torch::Tensor bias;  ///< [out / ranks]

 private:
  Group group_;
  std::shared_ptr<const optim::SplitTensors> split_;
  ColumnParallelOptions options_;
  uint64_t calls_ = 0;  // of forward
};
TORCH_MODULE(ColumnParallelLinear);

struct RowParallelOptions {
  bool bias = true;
  bool input_is_parallel = false;  ///< true: each rank gives its part of the inputs, from a ColumnParallelLinear
  bool sequence_parallel = false;  ///< the output is this rank's part of the sequence, not the whole
};

/// Each rank has some of the inputs: `weight` is [out, in / ranks]. The output is whole on every rank.
class RowParallelLinearImpl : public torch::nn::Module {
 public:
  RowParallelLinearImpl(int64_t in, int64_t out, const Group& group, const RowParallelOptions& options = {});
  torch::Tensor forward(const torch::Tensor& x);
  /// Weights from N(0, std^2), biases 0: with one seed the same layer on any number of ranks.
  void reset_normal(double std);

  torch::Tensor weight;
  torch::Tensor bias;  ///< [out], the same on every rank; added once

 private:
  Group group_;
  std::shared_ptr<const optim::SplitTensors> split_;
  RowParallelOptions options_;
  uint64_t calls_ = 0;  // of forward
};
TORCH_MODULE(RowParallelLinear);

struct VocabParallelOptions {
  bool sequence_parallel = false;  ///< the output is this rank's part of the sequence, not the whole
};

/// Each rank has some of the rows: `weight` is [words / ranks, width]. UsageError for a number beyond the words, and when
/// the ranks have different numbers.
class VocabParallelEmbeddingImpl : public torch::nn::Module {
 public:
  VocabParallelEmbeddingImpl(int64_t words, int64_t width, const Group& group,
                             const VocabParallelOptions& options = {});
  torch::Tensor forward(const torch::Tensor& numbers);
  /// Weights from N(0, std^2): with one seed the same layer on any number of ranks.
  void reset_normal(double std);

  torch::Tensor weight;

 private:
  int64_t words_;
  Group group_;
  std::shared_ptr<const optim::SplitTensors> split_;
  VocabParallelOptions options_;
};
TORCH_MODULE(VocabParallelEmbedding);

/// The mean cross entropy, as torch::cross_entropy_loss, of logits of which each rank has an equal part along the last
/// dimension. The whole of them is on no rank. `labels` are the same on every rank; those equal to `ignore_index` do not
/// count; if none counts, it is 0. Returns the same number on every rank. UsageError for a label outside of the classes, and when
/// the ranks have different labels.
torch::Tensor parallel_cross_entropy(const torch::Tensor& logits, const torch::Tensor& labels, const Group& group,
                                     int64_t ignore_index = -100);

}  // namespace trireme::nn
