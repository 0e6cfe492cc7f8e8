// Lists of tensors in the shape that fused and foreach kernels want. Internal to this folder.
#pragma once

#include <torch/types.h>

#include <map>
#include <tuple>
#include <vector>

namespace trireme::optim {

/// What tensors of one kernel call must share; `tag` is the caller's own.
using CallKey = std::tuple<c10::DeviceType, c10::DeviceIndex, c10::ScalarType, int64_t>;
inline CallKey call_key(const torch::Tensor& tensor, int64_t tag = 0) {
  return {tensor.device().type(), tensor.device().index(), tensor.scalar_type(), tag};
}

/// The defined gradients of the parameters by device and type.
std::map<CallKey, std::vector<torch::Tensor>> gradients_by_call(const std::vector<torch::Tensor>& parameters);

/// `value` with exactly the type and strides of `like`: fused kernels walk the memory of all their lists in step.
/// Itself or a view of it where memory order allows, else a copy. Throws UsageError for a sparse value or a `like` with
/// holes.
torch::Tensor in_step_with(const torch::Tensor& like, const torch::Tensor& value);

inline bool is_low_precision(c10::ScalarType type) {
  return type == torch::kHalf || type == torch::kBFloat16;
}

}  // namespace trireme::optim
