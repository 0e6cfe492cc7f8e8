#include "trireme/models/gpt/gpt.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "trireme/comm/collectives.h"
#include "trireme/comm/members.h"
#include "trireme/core/error.h"
#include "trireme/nn/evaluation_mode.h"
#include "trireme/parallel/init.h"
#include "trireme/parallel/random.h"
#include "trireme/parallel/recompute.h"
#include "trireme/parallel/tensor/exchange.h"

namespace trireme::models {
namespace {

using torch::Tensor;

constexpr double kStd = 0.02;

// Which numbers of a seed are whose: a layer has the same weights whichever others are made.
constexpr uint64_t kTokenSeed = 0, kPositionSeed = 1, kBlockSeed = 2;

GptOptions checked(const GptOptions& options, const Group& group) {
  group.state();  // a member?
  const auto positive = [](int64_t value, const char* what) {
    if (value < 1) throw UsageError("gpt: {} is {}; it must be at least 1", what, value);
  };
  positive(options.vocabulary, "vocabulary");
  positive(options.context, "context");
  positive(options.width, "width");
  positive(options.heads, "heads");
  positive(options.layers, "layers");
  const int64_t ranks = group.size();
  if (options.vocabulary % ranks != 0)
    throw UsageError("{}: gpt: a vocabulary of {} does not divide among {} ranks; take {}, which has {} unused tokens",
                     own_place(group), options.vocabulary, ranks, (options.vocabulary / ranks + 1) * ranks,
                     ranks - options.vocabulary % ranks);
  return options;
}

nn::TransformerBlockOptions block_options(const GptOptions& options) {
  return {.width = options.width,
          .heads = options.heads,
          .dropout = options.dropout,
          .sequence_parallel = options.sequence_parallel};
}

nn::VocabParallelEmbedding make_tokens(const GptOptions& options, const Group& group, uint64_t seed) {
  const detail::SeededRandom random(seed, kTokenSeed);
  nn::VocabParallelEmbedding tokens(options.vocabulary, options.width, group,
                                    nn::VocabParallelOptions{.sequence_parallel = options.sequence_parallel});
  tokens->reset_normal(kStd);
  return tokens;
}

nn::ParallelTransformerBlock make_block(const GptOptions& options, const Group& group, uint64_t seed, int64_t number) {
  const detail::SeededRandom random(seed, kBlockSeed + static_cast<uint64_t>(number));
  nn::ParallelTransformerBlock block(block_options(options), group);
  block->reset_normal(kStd, kStd / std::sqrt(2.0 * static_cast<double>(options.layers)));
  return block;
}

// One number of rank 0, from which all weights are drawn.
uint64_t common_seed(const Group& group) {
  const Tensor seed = torch::full({1}, static_cast<int64_t>(detail::draw_random()), torch::kLong);
  if (group.size() > 1) broadcast(seed, 0, group);
  return static_cast<uint64_t>(seed.item<int64_t>());
}

std::string block_name(int64_t number) {
  return fmt::format("block{}", number);
}

}  // namespace

GptEmbeddingImpl::GptEmbeddingImpl(const GptOptions& options, const Group& group, uint64_t seed)
    : options_(checked(options, group)), group_(group) {
  tokens = register_module("tokens", make_tokens(options, group, seed));
  const detail::SeededRandom random(seed, kPositionSeed);
  positions = register_parameter("positions", torch::randn({options.context, options.width}) * kStd);
}

Tensor GptEmbeddingImpl::forward(const Tensor& numbers) {
  if (numbers.dim() != 2 || numbers.size(1) < 1)
    throw UsageError("gpt: tokens have the shape [batch, sequence], not {}", c10::str(numbers.sizes()));
  const int64_t length = numbers.size(1);
  if (length > options_.context)
    throw UsageError("{}: gpt: a sequence of {} tokens is longer than the context of {}", own_place(group_), length,
                     options_.context);
  if (options_.sequence_parallel) nn::require_sequence(numbers.unsqueeze(-1), group_);
  const int64_t part = options_.sequence_parallel ? length / group_.size() : length;
  const int64_t first = options_.sequence_parallel ? part * group_.rank() : 0;
  const Tensor table = options_.sequence_parallel ? nn::sequence_shared(positions, group_) : positions;
  const Tensor x = tokens(numbers) + table.slice(0, first, first + part);
  return nn::parallel_dropout(x, is_training() ? options_.dropout : 0, options_.sequence_parallel, group_);
}

GptHeadImpl::GptHeadImpl(const GptOptions& options, const Group& group, const nn::VocabParallelEmbedding& tied)
    : tokens_(tied), options_(checked(options, group)), group_(group) {
  norm = register_module(
      "norm", nn::ParallelLayerNorm(options.width, group,
                                    nn::ParallelLayerNormOptions{.sequence_parallel = options.sequence_parallel}));
}

GptHeadImpl::GptHeadImpl(const GptOptions& options, const Group& group, uint64_t seed)
    : GptHeadImpl(options, group, make_tokens(options, group, seed)) {
  register_module("tokens", tokens_);
}

Tensor GptHeadImpl::forward(const Tensor& x) {
  return options_.sequence_parallel ? parallel::sequence_column_linear(norm(x), tokens_->weight, {}, group_)
                                    : parallel::column_linear(norm(x), tokens_->weight, {}, group_);
}

GptImpl::GptImpl(const GptOptions& options, const Group& group) : options_(checked(options, group)), group_(group) {
  const uint64_t seed = common_seed(group);
  embedding = register_module("embedding", GptEmbedding(options, group, seed));
  for (int64_t i = 0; i < options.layers; ++i)
    blocks.push_back(register_module(block_name(i), make_block(options, group, seed, i)));
  head = register_module("head", GptHead(options, group, embedding->tokens));
}

Tensor GptImpl::forward(const Tensor& tokens) {
  Tensor x = embedding(tokens);
  for (nn::ParallelTransformerBlock& block : blocks)
    x = options_.recompute ? checkpoint([block](Tensor input) mutable { return block(input); }, x) : block(x);
  return head(x);
}

Tensor GptImpl::loss(const Tensor& tokens, const Tensor& targets) {
  if (tokens.sizes() != targets.sizes())
    throw UsageError("gpt: tokens of shape {} need targets of that shape, not {}", c10::str(tokens.sizes()),
                     c10::str(targets.sizes()));
  return nn::parallel_cross_entropy(forward(tokens), targets, group_);
}

// Behind the last token, of the whole vocabulary.
Tensor GptImpl::next_logits(const Tensor& tokens) {
  const int64_t ranks = options_.sequence_parallel ? group_.size() : 1;
  const int64_t kept = std::min(tokens.size(1), options_.context / ranks * ranks);
  Tensor seen = tokens.slice(1, tokens.size(1) - kept);
  // What follows a token has no influence on it.
  if (const int64_t more = (ranks - kept % ranks) % ranks; more > 0) seen = torch::constant_pad_nd(seen, {0, more});
  return parallel::move(forward(seen).select(1, kept - 1), {parallel::Move::gather, parallel::Move::part}, group_);
}

Tensor GptImpl::generate(const Tensor& tokens, int64_t count, double temperature) {
  if (tokens.dim() != 2 || tokens.size(1) < 1)
    throw UsageError("gpt: generate() continues tokens of the shape [batch, sequence], not {}; begin with one token",
                     c10::str(tokens.sizes()));
  if (!(temperature >= 0)) throw UsageError("gpt: temperature is {}; it must be at least 0", temperature);
  if (options_.sequence_parallel && options_.context < group_.size())
    throw UsageError("{}: gpt: a context of {} does not divide among {} ranks", own_place(group_), options_.context,
                     group_.size());
  const torch::NoGradGuard no_grad;
  const nn::EvaluationMode evaluation(*this);
  Tensor text = tokens;
  for (int64_t i = 0; i < count; ++i) {
    const Tensor logits = next_logits(text).to(torch::kFloat);
    Tensor next = temperature == 0 ? logits.argmax(-1, /*keepdim=*/true)
                                   : torch::multinomial(torch::softmax(logits / temperature, -1), 1);
    if (group_.size() > 1) broadcast(next, 0, group_);  // all have drawn, so that their random numbers stay alike
    text = torch::cat({text, next}, 1);
  }
  return text;
}

Gpt gpt(const GptOptions& options, const Group& group) {
  return Gpt(options, group);
}

Gpt gpt(const GptOptions& options) {
  const World world = init_parallel_env();
  return Gpt(options, world.new_group({world.rank()}));
}

std::vector<NetworkLayer> gpt_layers(const GptOptions& options, const Group& group) {
  checked(options, group);
  const uint64_t seed = common_seed(group);
  std::vector<NetworkLayer> layers;
  layers.push_back({"embedding", [=] { return std::make_shared<GptEmbeddingImpl>(options, group, seed); }});
  for (int64_t i = 0; i < options.layers; ++i)
    layers.push_back({block_name(i), [=] { return make_block(options, group, seed, i).ptr(); }});
  layers.push_back({"head",
                    [=] { return std::make_shared<GptHeadImpl>(options, group, seed); },
                    {{"tokens.weight", "embedding.tokens.weight"}}});
  return layers;
}

}  // namespace trireme::models
