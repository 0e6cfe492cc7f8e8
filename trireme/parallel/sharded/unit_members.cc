#include "trireme/parallel/sharded/unit_members.h"

#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/optim/param_groups.h"

namespace trireme::parallel {

namespace {

void add_parameters_of_norms(const torch::nn::Module& module, std::unordered_set<const void*>& found) {
  if (optim::is_norm(module))
    for (const torch::Tensor& parameter : module.parameters(/*recurse=*/false))
      found.insert(parameter.unsafeGetTensorImpl());
  for (const auto& child : module.children()) add_parameters_of_norms(*child, found);
}

}  // namespace

std::vector<UnitMember> members_of(const torch::nn::Module& module, std::optional<c10::ScalarType> low) {
  std::vector<UnitMember> members;
  std::unordered_set<const void*> norms;
  add_parameters_of_norms(module, norms);
  const auto type_of = [&](const torch::Tensor& parameter) {
    const bool lowered = low && parameter.is_floating_point() && !norms.contains(parameter.unsafeGetTensorImpl());
    return lowered ? *low : parameter.scalar_type();
  };
  for (const auto& item : module.named_parameters()) {
    const bool known = std::any_of(members.begin(), members.end(),
                                   [&](const UnitMember& member) { return member.parameter.is_same(item.value()); });
    if (!known) members.push_back({item.key(), item.value(), type_of(item.value())});
  }
  if (members.empty()) throw UsageError("ShardedDataParallel: the model has no parameters; there is nothing to split");
  return members;
}

void require_own_memory(const torch::nn::Module& module) {
  std::unordered_map<const void*, std::pair<std::string, torch::Tensor>> seen;
  for (const auto& item : module.named_parameters()) {
    if (item.value().numel() == 0) continue;
    const auto [found, is_new] = seen.try_emplace(item.value().const_data_ptr(), item.key(), item.value());
    const auto& [name, other] = found->second;
    if (!is_new && !other.is_same(item.value()))
      throw UsageError(
          "ShardedDataParallel: parameters {} and {} are different tensors that share memory; tie them by using one "
          "tensor in both layers",
          name, item.key());
  }
}

std::vector<PlannedTensor> planned(const std::vector<UnitMember>& members, const std::vector<torch::Tensor>& alone) {
  const auto is_alone = [&](const torch::Tensor& parameter) {
    return std::any_of(alone.begin(), alone.end(), [&](const torch::Tensor& one) { return one.is_same(parameter); });
  };
  std::map<std::tuple<torch::ScalarType, torch::ScalarType, std::string, bool, std::string>, int> kinds;
  std::vector<PlannedTensor> result;
  for (const auto& [name, parameter, type] : members) {
    const auto key = std::tuple(parameter.scalar_type(), type, parameter.device().str(), parameter.requires_grad(),
                                is_alone(parameter) ? name : "");
    const int kind = kinds.try_emplace(key, static_cast<int>(kinds.size())).first->second;
    result.push_back({parameter.numel(), static_cast<int64_t>(c10::elementSize(type)), kind});
  }
  return result;
}

}  // namespace trireme::parallel
