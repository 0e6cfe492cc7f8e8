// GPT: the zoo's language model (Radford et al. 2019, GPT-2), alone or split over the ranks of a group.
//
//   auto net = models::gpt({.vocabulary = 256, .context = 256, .width = 384, .heads = 6, .layers = 6});
//   auto net = models::gpt(options, mesh["model"]);          // each rank has its part of every weight matrix
//
//   DataParallel model(net, mesh["data"]);
//   for (auto& [x, y] : loader) {                            // of data::Tokens: the same x, y on all ranks of mesh["model"]
//     model->loss(x, y).backward();
//     …
//   }
//   torch::Tensor text = net->generate(prompt, 100, 0.8);
//
// Token and position embeddings, `layers` blocks (nn::ParallelTransformerBlock), a norm, and the token embedding again as
// the last layer. Weights begin as GPT-2's: N(0, 0.02^2), those that end a residual branch divided by sqrt(2 * layers),
// biases 0. A seed (torch::manual_seed, rank 0's) gives the same weights on any number of ranks.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/models/network_layer.h"
#include "trireme/nn/tensor_module.h"
#include "trireme/parallel/tensor/layers.h"
#include "trireme/parallel/tensor/sequence.h"
#include "trireme/parallel/tensor/transformer.h"

namespace trireme::models {

/// The defaults are the small GPT-2 (124 million parameters).
struct GptOptions {
  int64_t vocabulary = 50257;  ///< split over the ranks: a multiple of their number, such as 50304
  int64_t context = 1024;      ///< the longest sequence
  int64_t width = 768;
  int64_t heads = 12;
  int64_t layers = 12;
  double dropout = 0.1;
  bool sequence_parallel = false;  ///< between the blocks each rank has its part of the sequence
  bool recompute = false;          ///< keep only the blocks' inputs, and compute the rest again in backward
};

/// Tokens, [batch, sequence], become vectors: the sum of what and where they are.
class GptEmbeddingImpl : public nn::TensorModule {
 public:
  GptEmbeddingImpl(const GptOptions& options, const Group& group, uint64_t seed);
  /// UsageError with both numbers for more tokens than the context, or, with sequence_parallel, for as many as the ranks
  /// do not divide.
  torch::Tensor forward(const torch::Tensor& numbers) override;

  nn::VocabParallelEmbedding tokens = nullptr;
  torch::Tensor positions;

 private:
  GptOptions options_;
  Group group_;
};
TORCH_MODULE(GptEmbedding);

/// Vectors become this rank's part of the logits, [batch, sequence, vocabulary / ranks].
class GptHeadImpl : public nn::TensorModule {
 public:
  /// With the weight of an embedding; that is then not a parameter of the head.
  GptHeadImpl(const GptOptions& options, const Group& group, const nn::VocabParallelEmbedding& tied);
  /// With a weight of its own, equal to the embedding's of this seed.
  GptHeadImpl(const GptOptions& options, const Group& group, uint64_t seed);
  torch::Tensor forward(const torch::Tensor& x) override;

  nn::ParallelLayerNorm norm = nullptr;

 private:
  nn::VocabParallelEmbedding tokens_ = nullptr;
  GptOptions options_;
  Group group_;
};
TORCH_MODULE(GptHead);

class GptImpl : public torch::nn::Module {
 public:
  GptImpl(const GptOptions& options, const Group& group);

  /// This rank's part of the logits, [batch, sequence, vocabulary / ranks]; on one rank the whole of them.
  torch::Tensor forward(const torch::Tensor& tokens);
  /// The mean cross entropy of the next tokens, the same on all ranks of the group. The whole logits are on no rank.
  torch::Tensor loss(const torch::Tensor& tokens, const torch::Tensor& targets);
  /// The tokens, [batch, sequence], and `count` more behind them, each drawn from what the model expects there: at
  /// temperature 1 as it does, below 1 the likely ones more often, at 0 the likeliest. Every rank of the group calls it.
  torch::Tensor generate(const torch::Tensor& tokens, int64_t count, double temperature = 1);

  const GptOptions& options() const { return options_; }
  const Group& group() const { return group_; }

  GptEmbedding embedding = nullptr;
  std::vector<nn::ParallelTransformerBlock> blocks;
  GptHead head = nullptr;

 private:
  torch::Tensor next_logits(const torch::Tensor& tokens);

  GptOptions options_;
  Group group_;
};
TORCH_MODULE(Gpt);

/// Each rank of the group has its part. UsageError with both numbers when the ranks do not divide heads or vocabulary.
Gpt gpt(const GptOptions& options, const Group& group);
/// The whole model on this rank, whatever others do.
Gpt gpt(const GptOptions& options = {});

/// The layers of gpt(options, group), by the names that they have there: "embedding", "block0", "block1", …, "head". One after the other they give this rank's part of
/// the logits. Takes one random number, as gpt() does: a seed gives the same weights.
std::vector<NetworkLayer> gpt_layers(const GptOptions& options, const Group& group);

}  // namespace trireme::models
