#include "trireme/parallel/tensor/sequence.h"

#include <torch/torch.h>

#include "trireme/comm/members.h"
#include "trireme/core/error.h"
#include "trireme/parallel/tensor/exchange.h"

namespace trireme::nn {

using parallel::kSequence;
using parallel::Move;
using torch::Tensor;

Tensor split_sequence(const Tensor& x, const Group& group) {
  require_sequence(x, group);
  return parallel::move(x, {Move::part, Move::gather, kSequence}, group);
}

Tensor gather_sequence(const Tensor& x, const Group& group) {
  parallel::require_summed_gradients(x, group);
  return parallel::move(x, {Move::gather, Move::part, kSequence}, group);
}

Tensor sequence_shared(const Tensor& parameter, const Group& group) {
  return parallel::move(parameter, {Move::nothing, Move::sum}, group);
}

void require_sequence(const Tensor& x, const Group& group) {
  group.state();  // a member?
  if (x.dim() < 2)
    throw UsageError("{}: a sequence has the shape [batch, sequence, width], not {}", own_place(group),
                     c10::str(x.sizes()));
  if (x.size(kSequence) % group.size() != 0)
    throw UsageError("{}: sequence_parallel: a sequence of {} does not divide among {} ranks; take a multiple of {}",
                     own_place(group), x.size(kSequence), group.size(), group.size());
}

ParallelLayerNormImpl::ParallelLayerNormImpl(int64_t width, const Group& group, const ParallelLayerNormOptions& options)
    : weight(register_parameter("weight", torch::ones({width}))),
      bias(register_parameter("bias", torch::zeros({width}))),
      group_(group),
      options_(options) {
  group.state();  // a member?
}

Tensor ParallelLayerNormImpl::forward(const Tensor& x) {
  const int64_t width = weight.size(0);
  if (!options_.sequence_parallel) return torch::layer_norm(x, {width}, weight, bias, options_.epsilon);
  const Tensor both = sequence_shared(torch::cat({weight, bias}), group_);  // one sum in backward, not two
  return torch::layer_norm(x, {width}, both.slice(0, 0, width), both.slice(0, width), options_.epsilon);
}

}  // namespace trireme::nn
