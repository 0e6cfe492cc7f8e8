#include "trireme/parallel/model_parameters.h"

#include <fmt/core.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_set>

#include "trireme/parallel/same_model.h"

namespace trireme::parallel {
namespace {

using torch::autograd::Node;

// Module::parameters() builds a name for each; this does not, and is called before every backward.
struct OwnParameters : torch::nn::Module {
  static const torch::OrderedDict<std::string, torch::Tensor>& of(const torch::nn::Module& module) {
    return module.*(&OwnParameters::parameters_);
  }
};

// Calls `visit` for each parameter of the tree until it returns false.
template <typename Visit>
bool visit_parameters(const torch::nn::Module& module, const Visit& visit) {
  for (const auto& item : OwnParameters::of(module))
    if (item.value().defined() && !visit(item.value())) return false;
  for (const auto& child : module.children())
    if (!visit_parameters(*child, visit)) return false;
  return true;
}

uint64_t hash(uint64_t seed, const std::string& text) {
  constexpr uint64_t kPrime = 1099511628211u;  // FNV-1a
  for (const char c : text) seed = (seed ^ static_cast<uint8_t>(c)) * kPrime;
  return (seed ^ '\n') * kPrime;
}

}  // namespace

ModelParameters::ModelParameters(const torch::nn::Module& module) {
  std::unordered_set<const c10::TensorImpl*> seen;
  fingerprint_ = 14695981039346656037u;
  for (const auto& item : module.named_parameters()) {
    const torch::Tensor& tensor = item.value();
    lines_.push_back({item.key(), describe_tensor(tensor)});
    fingerprint_ = hash(hash(fingerprint_, lines_.back().name), lines_.back().description);
    if (tensor.requires_grad() && seen.insert(tensor.unsafeGetTensorImpl()).second)
      trainable_.push_back({item.key(), tensor, torch::autograd::impl::grad_accumulator(tensor)});
  }
  visit_parameters(module, [&](const torch::Tensor& tensor) {
    const Node* accumulator = tensor.requires_grad() ? torch::autograd::impl::grad_accumulator(tensor).get() : nullptr;
    identities_.emplace_back(tensor.unsafeGetTensorImpl(), accumulator);
    return true;
  });
}

bool ModelParameters::is_current(const torch::nn::Module& module) const {
  size_t place = 0;
  const bool same = visit_parameters(module, [&](const torch::Tensor& tensor) {
    if (place == identities_.size()) return false;
    const auto& [impl, accumulator] = identities_[place++];
    if (tensor.unsafeGetTensorImpl() != impl || tensor.requires_grad() != (accumulator != nullptr)) return false;
    return accumulator == nullptr || torch::autograd::impl::try_get_grad_accumulator(tensor).get() == accumulator;
  });
  return same && place == identities_.size();
}

std::string ModelParameters::first_change_since(const ModelParameters& before) const {
  for (const Line& line : lines_) {
    const auto old = std::find_if(before.lines_.begin(), before.lines_.end(),
                                  [&](const Line& other) { return other.name == line.name; });
    if (old == before.lines_.end()) return fmt::format("parameter {} {} is new", line.name, line.description);
    if (*old != line)
      return fmt::format("parameter {} is {} and was {}", line.name, line.description, old->description);
  }
  for (const Line& line : before.lines_)
    if (std::find(lines_.begin(), lines_.end(), line) == lines_.end())
      return fmt::format("parameter {} {} is gone", line.name, line.description);
  for (const ModelParameter& parameter : trainable_)
    if (std::none_of(before.trainable_.begin(), before.trainable_.end(),
                     [&](const ModelParameter& other) { return other.accumulator == parameter.accumulator; }))
      return fmt::format("parameter {} is another tensor", parameter.name);
  return "nothing";
}

}  // namespace trireme::parallel
