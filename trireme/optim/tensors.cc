#include "trireme/optim/tensors.h"

#include <torch/torch.h>

#include "trireme/core/error.h"

namespace trireme::optim {
namespace {

/// Whether both lie in memory in the same order; the stride of a dimension of one element does not count.
bool same_order(const torch::Tensor& a, const torch::Tensor& b) {
  for (int64_t i = 0; i < a.dim(); ++i)
    if (a.size(i) != 1 && a.stride(i) != b.stride(i)) return false;
  return true;
}

void check(const torch::Tensor& like, const torch::Tensor& value) {
  if (value.layout() != torch::kStrided)
    throw UsageError("optim: a gradient is sparse; the fused optimizers take dense ones. Use torch::optim for it");
  if (!like.is_non_overlapping_and_dense())
    throw UsageError("optim: a parameter of shape {} has holes in memory (strides {}); make it contiguous()",
                     c10::str(like.sizes()), c10::str(like.strides()));
  if (like.sizes() != value.sizes())
    throw UsageError(
        "optim: a parameter of shape {} has a gradient or state of shape {}; were they made for another "
        "model?",
        c10::str(like.sizes()), c10::str(value.sizes()));
}

}  // namespace

std::map<CallKey, std::vector<torch::Tensor>> gradients_by_call(const std::vector<torch::Tensor>& parameters) {
  std::map<CallKey, std::vector<torch::Tensor>> calls;
  for (const torch::Tensor& parameter : parameters)
    if (const torch::Tensor& grad = parameter.grad(); grad.defined()) calls[call_key(grad)].push_back(grad);
  return calls;
}

torch::Tensor in_step_with(const torch::Tensor& like, const torch::Tensor& value) {
  check(like, value);
  const bool same_type = value.scalar_type() == like.scalar_type() && value.device() == like.device();
  if (same_type && value.strides() == like.strides()) return value;
  if (same_type && same_order(like, value))
    return value.as_strided(like.sizes(), like.strides(), value.storage_offset());
  return torch::empty_like(like).copy_(value);
}

}  // namespace trireme::optim
