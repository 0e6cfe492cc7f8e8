#include "trireme/parallel/tensor/layers.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/torch.h>

#include <bit>

#include "trireme/comm/collectives.h"
#include "trireme/comm/members.h"
#include "trireme/core/error.h"
#include "trireme/optim/split_tensors.h"
#include "trireme/parallel/random.h"
#include "trireme/parallel/tensor/exchange.h"
#include "trireme/parallel/tensor/sequence.h"

namespace trireme::nn {
namespace {

using parallel::Move;
using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

int64_t part_of(int64_t size, const char* layer, const char* what, const Group& group) {
  group.state();  // a member?
  if (size < 1 || size % group.size() != 0)
    throw UsageError("{}: {}: {} {} do not divide among {} ranks; take a multiple of {}", own_place(group), layer, size,
                     what, group.size(), group.size());
  detail::require_same_random(group, torch::kCPU, fmt::format("their parts of a {} would not be of one layer", layer),
                              "call torch::manual_seed with one seed on every rank before the layers are made");
  return size / group.size();
}

// This rank's part along a dimension, in memory of its own.
Tensor own_part(const Tensor& whole, int64_t dim, const Group& group) {
  return whole.detach().chunk(group.size(), dim)[static_cast<size_t>(group.rank())].clone();
}

// How parameters are joined that are split along `dim` (optim/split_tensors.h).
std::shared_ptr<const optim::SplitTensors> split_along(int64_t dim, const Group& group) {
  const auto gather = [dim, group](const Tensor&, const Tensor& part) {
    const torch::NoGradGuard no_grad;
    Tensors all;
    all_gather(all, part.detach().contiguous(), group);
    return torch::cat(all, dim);
  };
  const auto cut = [dim, group](const Tensor&, const Tensor& whole) {
    if (whole.size(dim) % group.size() != 0)
      throw UsageError("{}: dimension {} of a saved tensor of shape {} does not divide among {} ranks",
                       own_place(group), dim, c10::str(whole.sizes()), group.size());
    return own_part(whole, dim, group);
  };
  auto how = std::make_shared<optim::SplitTensors>();
  how->sum = [group](const Tensor& value) { all_reduce(value, ReduceOp::sum, group); };
  how->max = [group](const Tensor& value) { all_reduce(value, ReduceOp::max, group); };
  how->join = gather;
  how->cut = cut;
  how->sizes = [dim, group](const Tensor& part) {
    std::vector<int64_t> sizes = part.sizes().vec();
    sizes[static_cast<size_t>(dim)] *= group.size();
    return sizes;
  };
  how->whole = [gather](const Tensor& parameter) { return gather(parameter, parameter); };
  how->put = [](const Tensor& parameter, const Tensor& part) {
    const torch::NoGradGuard no_grad;
    parameter.copy_(part);
  };
  how->ranks = group.ranks();
  return how;
}

// The numbers of a weight that is split along `dim`, drawn as for the whole one.
void draw_normal(const Tensor& weight, int64_t dim, double std, const Group& group) {
  const torch::NoGradGuard no_grad;
  std::vector<int64_t> sizes = weight.sizes().vec();
  sizes[static_cast<size_t>(dim)] *= group.size();
  weight.copy_(own_part(torch::randn(sizes, weight.scalar_type()) * std, dim, group));
}

void set_zero(const Tensor& bias) {
  if (bias.defined()) bias.detach().zero_();
}

torch::nn::Linear whole_layer(int64_t in, int64_t out, bool bias) {
  return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(bias));
}

// The ranks' summands, [batch, sequence, width], become the whole sum on every rank, or each rank's part of the sequence.
Tensor summed(const Tensor& summand, bool sequence_parallel, const Group& group) {
  if (!sequence_parallel) return parallel::move(summand, {Move::sum, Move::nothing}, group);
  require_sequence(summand, group);
  return parallel::move(summand, {Move::reduce_scatter, Move::gather, parallel::kSequence}, group);
}

// On a GPU the question stays there: asking would wait for it.
void require_within(const Tensor& numbers, int64_t count, const char* what) {
  const Tensor fine = numbers.ge(0).logical_and(numbers.lt(count)).all();
  if (numbers.is_cuda()) return at::_assert_async(fine, what);
  if (!fine.item<bool>())
    throw UsageError("{}: there are numbers from {} to {}, but only 0 to {} exist", what, numbers.min().item<int64_t>(),
                     numbers.max().item<int64_t>(), count - 1);
}

// Ranks with other batches would each compute a part of something else. On a GPU the verdict stays there.
void require_same_inputs(const Tensor& same, const Group& group, const char* what) {
  if (same.is_cuda())
    return at::_assert_async(same, fmt::format("{}: the ranks of this axis have different inputs", what));
  if (!same.item<bool>())
    throw UsageError(
        "{}: {}: the ranks of this axis have different inputs, and each would compute its part of something "
        "else; give all of them the same batch, by a Loader over mesh[\"data\"]",
        own_place(group), what);
}

// The sum of two numbers of each rank, the larger one of which wins, is 0 if they are the same.
void require_same(const Tensor& numbers, const Group& group, const char* what) {
  if (group.size() == 1) return;
  const Tensor places = torch::arange(1, numbers.numel() + 1, numbers.options().dtype(torch::kLong));
  const Tensor sum = ((numbers.flatten().to(torch::kLong) + 1) * (places * 2654435761 + 40503)).sum();
  const Tensor both = torch::stack({sum, -sum});
  all_reduce(both, ReduceOp::max, group);
  require_same_inputs(both.sum().eq(0), group, what);
}

// Numbers without a pattern, from -1 to 1.
Tensor scattered(int64_t count, double seed, const Tensor& like) {
  const Tensor places = torch::arange(1, count + 1, like.options().dtype(torch::kDouble));
  return (places * seed).square().sin();
}

// The same of activations, in calls 1, 2, 4, 8 and so on of a layer. Kernels of different machines may round differently,
// so it compares projections: those of other batches differ by about as much as they are large. Numbers that are not
// finite pass.
void require_same_activations(const Tensor& x, uint64_t call, const Group& group, const char* what) {
  if (group.size() == 1 || !std::has_single_bit(call) || x.numel() == 0) return;
  constexpr double kRounding = 0.05;
  const torch::NoGradGuard no_grad;
  const Tensor weights = scattered(x.size(-1), 1.3, x).to(x.scalar_type()).unsqueeze(0);
  const Tensor rows = torch::linear(x.detach(), weights).flatten().to(torch::kDouble);
  std::vector<Tensor> sums{rows.square().sum().sqrt()};
  for (const double seed : {0.7, 1.1, 1.9, 2.3}) sums.push_back(rows.dot(scattered(rows.numel(), seed, x)));
  const Tensor mine = torch::stack(sums);
  const Tensor both = torch::stack({mine, -mine});
  all_reduce(both, ReduceOp::max, group);
  require_same_inputs(both.sum(0).gt(kRounding * both[0][0]).any().logical_not(), group, what);
}

// Which of the numbers lie in this rank's part, and where there; elsewhere 0.
struct Local {
  Tensor mine;
  Tensor place;
};
Local local_numbers(const Tensor& numbers, int64_t part, const Group& group) {
  const Tensor place = numbers - part * group.rank();
  const Tensor mine = place.ge(0).logical_and(place.lt(part));
  return {mine, place.masked_fill(mine.logical_not(), 0)};
}

class CrossEntropy : public torch::autograd::Function<CrossEntropy> {
 public:
  // `labels` that do not count are 0, and 0 in `counts`.
  static Tensor forward(AutogradContext* context, const Tensor& logits, const Tensor& labels, const Tensor& counts,
                        const Group& group) {
    const Tensor largest = logits.amax(-1, true);
    all_reduce(largest, ReduceOp::max, group);
    const Tensor shifted = logits - largest;
    Tensor softmax = shifted.exp();
    const auto [mine, place] = local_numbers(labels, logits.size(-1), group);
    const Tensor picked = shifted.gather(-1, place.unsqueeze(-1)).squeeze(-1) * mine;
    const Tensor sums = torch::stack({softmax.sum(-1), picked});
    all_reduce(sums, ReduceOp::sum, group);
    const Tensor total = counts.sum().clamp_min(1);
    softmax /= sums[0].unsqueeze(-1);
    context->save_for_backward({softmax, place, mine.to(logits.scalar_type()), counts / total});
    return ((sums[0].log() - sums[1]) * counts).sum() / total;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (at::GradMode::is_enabled())
      throw UsageError("parallel_cross_entropy has no second derivative: use create_graph = false");
    const variable_list saved = context->get_saved_variables();
    const Tensor &softmax = saved[0], &place = saved[1], &mine = saved[2], &weights = saved[3];
    Tensor gradient = softmax.scatter_add(-1, place.unsqueeze(-1), -mine.unsqueeze(-1));
    gradient *= (weights * gradients[0]).unsqueeze(-1);
    return {gradient, {}, {}, {}};
  }
};

}  // namespace

ColumnParallelLinearImpl::ColumnParallelLinearImpl(int64_t in, int64_t out, const Group& group,
                                                   const ColumnParallelOptions& options)
    : group_(group), options_(options) {
  part_of(out, "ColumnParallelLinear", "outputs", group);
  const torch::nn::Linear whole = whole_layer(in, out, options.bias);
  weight = register_parameter("weight", own_part(whole->weight, 0, group));
  if (options.bias) bias = register_parameter("bias", own_part(whole->bias, 0, group));
  split_ = split_along(0, group);
  for (const Tensor& parameter : parameters()) optim::mark_split(parameter, parameter, split_);
}

Tensor ColumnParallelLinearImpl::forward(const Tensor& x) {
  if (!options_.sequence_parallel) require_same_activations(x, ++calls_, group_, "ColumnParallelLinear");
  const Tensor y = options_.sequence_parallel ? parallel::sequence_column_linear(x, weight, bias, group_)
                                              : parallel::column_linear(x, weight, bias, group_);
  return options_.gather_output ? parallel::move(y, {Move::gather, Move::part}, group_) : y;
}

void ColumnParallelLinearImpl::reset_normal(double std) {
  draw_normal(weight, 0, std, group_);
  set_zero(bias);
}

RowParallelLinearImpl::RowParallelLinearImpl(int64_t in, int64_t out, const Group& group,
                                             const RowParallelOptions& options)
    : group_(group), options_(options) {
  part_of(in, "RowParallelLinear", "inputs", group);
  const torch::nn::Linear whole = whole_layer(in, out, options.bias);
  weight = register_parameter("weight", own_part(whole->weight, 1, group));
  split_ = split_along(1, group);
  optim::mark_split(weight, weight, split_);
  if (options.bias) bias = register_parameter("bias", whole->bias.detach().clone());
}

Tensor RowParallelLinearImpl::forward(const Tensor& x) {
  if (!options_.input_is_parallel) require_same_activations(x, ++calls_, group_, "RowParallelLinear");
  const Tensor part = options_.input_is_parallel ? x : parallel::move(x, {Move::part, Move::gather}, group_);
  const Tensor y = summed(torch::linear(part, weight), options_.sequence_parallel, group_);
  if (!bias.defined()) return y;
  return y + (options_.sequence_parallel ? sequence_shared(bias, group_) : bias);
}

void RowParallelLinearImpl::reset_normal(double std) {
  draw_normal(weight, 1, std, group_);
  set_zero(bias);
}

VocabParallelEmbeddingImpl::VocabParallelEmbeddingImpl(int64_t words, int64_t width, const Group& group,
                                                       const VocabParallelOptions& options)
    : words_(words), group_(group), options_(options) {
  part_of(words, "VocabParallelEmbedding", "words", group);
  weight = register_parameter("weight", own_part(torch::nn::Embedding(words, width)->weight, 0, group));
  split_ = split_along(0, group);
  optim::mark_split(weight, weight, split_);
}

Tensor VocabParallelEmbeddingImpl::forward(const Tensor& numbers) {
  require_same(numbers, group_, "VocabParallelEmbedding");
  require_within(numbers, words_, "VocabParallelEmbedding");
  const auto [mine, place] = local_numbers(numbers, weight.size(0), group_);
  const Tensor part = torch::embedding(weight, place) * mine.unsqueeze(-1);
  return summed(part, options_.sequence_parallel, group_);
}

void VocabParallelEmbeddingImpl::reset_normal(double std) {
  draw_normal(weight, 0, std, group_);
}

Tensor parallel_cross_entropy(const Tensor& logits, const Tensor& labels, const Group& group, int64_t ignore_index) {
  if (logits.dim() < 1 || logits.sizes().slice(0, static_cast<size_t>(logits.dim() - 1)) != labels.sizes())
    throw UsageError(
        "parallel_cross_entropy: logits of shape {} need labels of that shape without the last dimension, not {}",
        c10::str(logits.sizes()), c10::str(labels.sizes()));
  require_same(labels, group, "parallel_cross_entropy");
  const Tensor ignored = labels.eq(ignore_index);
  const Tensor numbers = labels.masked_fill(ignored, 0);
  require_within(numbers, logits.size(-1) * group.size(), "parallel_cross_entropy");
  const Tensor exact = logits.scalar_type() == torch::kDouble ? logits : logits.to(torch::kFloat);
  return CrossEntropy::apply(exact, numbers, ignored.logical_not().to(exact.scalar_type()), group);
}

}  // namespace trireme::nn
