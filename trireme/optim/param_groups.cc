#include "trireme/optim/param_groups.h"

#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "trireme/core/error.h"
#include "trireme/optim/split_tensors.h"

namespace trireme::optim {
namespace {

struct Named {
  std::string name;  // of the parameter, from the root
  torch::Tensor tensor;
  bool of_norm;
};

/// Walks the modules itself: torch's own walk names no owner of a parameter.
void collect(const torch::nn::Module& module, const std::string& prefix, std::vector<Named>& all) {
  for (const auto& item : module.named_parameters(/*recurse=*/false))
    all.push_back({prefix + item.key(), item.value(), is_norm(module)});
  for (const auto& child : module.named_children()) collect(*child.value(), prefix + child.key() + ".", all);
}

bool is_spared(const Named& parameter, const NoDecay& spared) {
  const std::string last = parameter.name.substr(parameter.name.rfind('.') + 1);
  const auto contained = [&](const std::string& part) { return parameter.name.find(part) != std::string::npos; };
  return (spared.norm && parameter.of_norm) || (spared.bias && last == "bias") ||
         (spared.one_dim && parameter.tensor.dim() == 1) || std::ranges::any_of(spared.names, contained);
}

double factor_of(const std::string& name, const LrFactorOf& lr_factor_of) {
  const double factor = lr_factor_of ? lr_factor_of(name) : 1;
  if (!(factor >= 0)) throw UsageError("the learning rate's factor of {} is {}; it must not be negative", name, factor);
  return factor;
}

}  // namespace

bool is_norm(const torch::nn::Module& module) {
  return module.name().find("Norm") != std::string::npos;
}

std::vector<ParamGroup> decay_groups(const torch::nn::Module& module, const NoDecay& spared,
                                     const LrFactorOf& lr_factor_of) {
  std::vector<Named> all;
  collect(module, "", all);
  std::map<std::pair<bool, double>, std::vector<torch::Tensor>> by_kind;  // whether it is spared, its factor
  std::unordered_set<const void*> seen;
  for (const Named& parameter : all) {
    if (!parameter.tensor.requires_grad() || !seen.insert(parameter.tensor.unsafeGetTensorImpl()).second) continue;
    by_kind[{is_spared(parameter, spared), factor_of(parameter.name, lr_factor_of)}].push_back(
        piece_of(parameter.tensor));
  }
  std::vector<ParamGroup> groups;
  for (auto& [kind, params] : by_kind) {
    const auto [is_kept, factor] = kind;
    groups.push_back({.params = std::move(params),
                      .weight_decay = is_kept ? std::optional(0.0) : std::nullopt,
                      .lr_factor = factor});
  }
  return groups;
}

}  // namespace trireme::optim
