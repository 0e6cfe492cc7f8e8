#include "trireme/parallel/tensor/transformer.h"

#include <torch/torch.h>

#include <memory>

#include "trireme/comm/members.h"
#include "trireme/core/error.h"
#include "trireme/parallel/random.h"

namespace trireme::nn {
namespace {

using torch::Tensor;

TransformerBlockOptions checked(TransformerBlockOptions options, const Group& group) {
  group.state();  // a member?
  if (options.hidden == 0) options.hidden = 4 * options.width;
  if (options.width < 1 || options.heads < 1 || options.width % options.heads != 0)
    throw UsageError("ParallelTransformerBlock: {} heads do not divide a width of {}; take a multiple of {}",
                     options.heads, options.width, options.heads);
  if (options.heads % group.size() != 0)
    throw UsageError("{}: ParallelTransformerBlock: {} heads do not divide among {} ranks; take a multiple of {}",
                     own_place(group), options.heads, group.size(), group.size());
  if (options.hidden < 1 || options.hidden % group.size() != 0)
    throw UsageError(
        "{}: ParallelTransformerBlock: a hidden width of {} does not divide among {} ranks; take a multiple of {}",
        own_place(group), options.hidden, group.size(), group.size());
  if (!(options.dropout >= 0 && options.dropout < 1))
    throw UsageError("ParallelTransformerBlock: dropout is {}; it must be at least 0 and below 1", options.dropout);
  return options;
}

ParallelLayerNorm norm(const TransformerBlockOptions& options, const Group& group) {
  return ParallelLayerNorm(
      options.width, group,
      ParallelLayerNormOptions{.sequence_parallel = options.sequence_parallel, .epsilon = options.epsilon});
}

ColumnParallelLinear columns(int64_t in, int64_t out, const TransformerBlockOptions& options, const Group& group) {
  return ColumnParallelLinear(
      in, out, group, ColumnParallelOptions{.gather_output = false, .sequence_parallel = options.sequence_parallel});
}

RowParallelLinear rows(int64_t in, int64_t out, const TransformerBlockOptions& options, const Group& group) {
  return RowParallelLinear(
      in, out, group, RowParallelOptions{.input_is_parallel = true, .sequence_parallel = options.sequence_parallel});
}

}  // namespace

ParallelTransformerBlockImpl::ParallelTransformerBlockImpl(const TransformerBlockOptions& options, const Group& group)
    : options_(checked(options, group)), group_(group) {
  const int64_t width = options_.width;
  attention_norm = register_module("attention_norm", norm(options_, group));
  qkv = register_module("qkv", columns(width, 3 * width, options_, group));
  project = register_module("project", rows(width, width, options_, group));
  mlp_norm = register_module("mlp_norm", norm(options_, group));
  up = register_module("up", columns(width, options_.hidden, options_, group));
  down = register_module("down", rows(options_.hidden, width, options_, group));
}

void ParallelTransformerBlockImpl::reset_normal(double std, double residual_std) {
  qkv->reset_normal(std);
  project->reset_normal(residual_std);
  up->reset_normal(std);
  down->reset_normal(residual_std);
}

Tensor ParallelTransformerBlockImpl::forward(const Tensor& x) {
  if (x.dim() != 3 || x.size(-1) != options_.width)
    throw UsageError("ParallelTransformerBlock: the input is [batch, sequence, {}], not {}", options_.width,
                     c10::str(x.sizes()));
  const Tensor attended = x + dropped(project(attention(qkv(attention_norm(x)))));
  return attended + dropped(down(torch::gelu(up(mlp_norm(attended)), "tanh")));
}

// Of this rank's heads. From [batch, sequence, heads * 3 * size] to [batch, sequence, heads * size].
Tensor ParallelTransformerBlockImpl::attention(const Tensor& x) {
  const double dropout = is_training() ? options_.dropout : 0;
  const int64_t heads = options_.heads / group_.size(), size = options_.width / options_.heads;
  const Tensor parts = x.view({x.size(0), x.size(1), heads, 3, size}).permute({3, 0, 2, 1, 4});
  std::unique_ptr<RankRandom> own;
  if (dropout > 0) own = std::make_unique<RankRandom>(group_);
  const Tensor y =
      at::scaled_dot_product_attention(parts[0], parts[1], parts[2], /*attn_mask=*/{}, dropout, options_.causal);
  return y.transpose(1, 2).reshape({x.size(0), x.size(1), heads * size});
}

Tensor ParallelTransformerBlockImpl::dropped(const Tensor& x) const {
  return parallel_dropout(x, is_training() ? options_.dropout : 0, options_.sequence_parallel, group_);
}

Tensor parallel_dropout(const Tensor& x, double dropout, bool sequence_parallel, const Group& group) {
  if (dropout == 0) return x;
  if (sequence_parallel) {
    const RankRandom own(group);
    return torch::dropout(x, dropout, /*train=*/true);
  }
  detail::require_same_random(
      group, x.device(), "dropout on activations that all of them have would differ",
      "seed them alike on every rank, after the model is made or restored: seed_along(mesh[\"data\"], seed)");
  return torch::dropout(x, dropout, /*train=*/true);
}

}  // namespace trireme::nn
