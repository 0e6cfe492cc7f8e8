#include "trireme/optim/param_groups.h"

#include <torch/torch.h>

#include <algorithm>
#include <unordered_set>

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

}  // namespace

bool is_norm(const torch::nn::Module& module) {
  return module.name().find("Norm") != std::string::npos;
}

std::vector<ParamGroup> decay_groups(const torch::nn::Module& module, const NoDecay& spared) {
  std::vector<Named> all;
  collect(module, "", all);
  ParamGroup decayed, kept{.params = {}, .weight_decay = 0.0};
  std::unordered_set<const void*> seen;
  for (const Named& parameter : all) {
    if (!parameter.tensor.requires_grad() || !seen.insert(parameter.tensor.unsafeGetTensorImpl()).second) continue;
    (is_spared(parameter, spared) ? kept : decayed).params.push_back(parameter.tensor);
  }
  std::vector<ParamGroup> groups;
  for (ParamGroup* group : {&decayed, &kept})
    if (!group->params.empty()) groups.push_back(std::move(*group));
  return groups;
}

}  // namespace trireme::optim
