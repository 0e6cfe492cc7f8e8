#include "trireme/optim/clip.h"

#include <ATen/record_function.h>
#include <torch/torch.h>

#include <cmath>

#include "trireme/core/error.h"
#include "trireme/optim/split_tensors.h"
#include "trireme/optim/tensors.h"

namespace trireme::optim {
namespace {

using torch::Tensor;
using Calls = std::map<CallKey, std::vector<Tensor>>;

Tensor norm_here(Calls& calls) {
  if (calls.empty()) return torch::zeros({});
  const torch::Device home = calls.begin()->second[0].device();
  std::vector<Tensor> norms;
  for (auto& [key, grads] : calls) {
    // Norms of half precision gradients are taken in float: their squares leave its range.
    const auto type = is_low_precision(std::get<2>(key)) ? torch::kFloat : std::get<2>(key);
    for (const Tensor& norm : at::_foreach_norm(grads, 2, type)) norms.push_back(norm.to(home));
  }
  return torch::linalg_vector_norm(torch::stack(norms));
}

// The same over all parts, on whatever ranks they lie.
Tensor norm_everywhere(const SplitGroup& group) {
  Calls calls = gradients_by_call(group.parameters);
  if (!group.how) return norm_here(calls);
  const Tensor& first = group.parameters[0];  // all ranks have the same list, and so the same type
  const auto type = is_low_precision(first.scalar_type()) ? torch::kFloat : first.scalar_type();
  const Tensor sum = norm_here(calls).to(first.device(), type).square();
  group.how->sum(sum);
  return sum.sqrt();
}

Tensor norm_over_splits(const std::vector<Tensor>& parameters) {
  const at::DisableRecordFunctionGuard knowing;  // ShardedDataParallel objects to norms of this rank's parts alone
  std::vector<Tensor> norms;
  for (const SplitGroup& group : by_split(parameters)) norms.push_back(norm_everywhere(group));
  if (norms.empty()) return torch::zeros({});
  if (norms.size() == 1) return norms[0];
  for (Tensor& norm : norms) norm = norm.to(norms.back().options());
  return torch::linalg_vector_norm(torch::stack(norms));
}

// The same with the parameters on other ranks (optim/split_tensors.h).
Tensor norm_of(const std::vector<Tensor>& parameters) {
  const Tensor norm = norm_over_splits(parameters);
  const auto model = spread_of(parameters);
  if (!model) return norm;
  const Tensor sum = norm.to(torch::kDouble).square();
  model->sum(sum);
  return sum.sqrt().to(norm.scalar_type());
}

void check_finite(const Tensor& norm, size_t parameters) {
  const double value = norm.item<double>();
  if (!std::isfinite(value))
    throw UsageError(
        "clip_grad_norm: the norm of the gradients of {} parameters is {}; lower the learning rate, or use "
        "a GradScaler with fp16",
        parameters, value);
}

// The gradients of a split parameter are its piece's.
std::vector<Tensor> pieces_of(const std::vector<Tensor>& parameters) {
  std::vector<Tensor> pieces;
  for (const Tensor& parameter : parameters) pieces.push_back(piece_of(parameter));
  return pieces;
}

}  // namespace

Tensor grad_norm(const std::vector<Tensor>& parameters) {
  torch::NoGradGuard no_grad;
  return norm_of(pieces_of(parameters));
}

Tensor clip_grad_norm(const std::vector<Tensor>& parameters, double max_norm, ClipOptions options) {
  if (!(max_norm > 0)) throw UsageError("clip_grad_norm: max_norm {} must be above 0", max_norm);
  torch::NoGradGuard no_grad;
  const std::vector<Tensor> pieces = pieces_of(parameters);
  Calls calls = gradients_by_call(pieces);
  const Tensor norm = norm_of(pieces);
  if (options.error_if_nonfinite) check_finite(norm, parameters.size());
  const Tensor factor = max_norm / norm.clamp_min(max_norm);
  for (auto& [key, grads] : calls) at::_foreach_mul_(grads, factor.to(grads[0].device()).to(grads[0].scalar_type()));
  return norm;
}

}  // namespace trireme::optim
