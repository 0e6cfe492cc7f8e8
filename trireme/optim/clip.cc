#include "trireme/optim/clip.h"

#include <torch/torch.h>

#include <cmath>

#include "trireme/core/error.h"
#include "trireme/optim/tensors.h"

namespace trireme::optim {
namespace {

using torch::Tensor;
using Calls = std::map<CallKey, std::vector<Tensor>>;

Tensor norm_of(Calls& calls) {
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

void check_finite(const Tensor& norm, size_t parameters) {
  const double value = norm.item<double>();
  if (!std::isfinite(value))
    throw UsageError(
        "clip_grad_norm: the norm of the gradients of {} parameters is {}; lower the learning rate, or use "
        "a GradScaler with fp16",
        parameters, value);
}

}  // namespace

Tensor grad_norm(const std::vector<Tensor>& parameters) {
  torch::NoGradGuard no_grad;
  Calls calls = gradients_by_call(parameters);
  return norm_of(calls);
}

Tensor clip_grad_norm(const std::vector<Tensor>& parameters, double max_norm, ClipOptions options) {
  if (!(max_norm > 0)) throw UsageError("clip_grad_norm: max_norm {} must be above 0", max_norm);
  torch::NoGradGuard no_grad;
  Calls calls = gradients_by_call(parameters);
  const Tensor norm = norm_of(calls);
  if (options.error_if_nonfinite) check_finite(norm, parameters.size());
  const Tensor factor = max_norm / norm.clamp_min(max_norm);
  for (auto& [key, grads] : calls) at::_foreach_mul_(grads, factor.to(grads[0].device()).to(grads[0].scalar_type()));
  return norm;
}

}  // namespace trireme::optim
