#include "trireme/parallel/weight_marks.h"

#include <torch/torch.h>

namespace trireme::parallel {
namespace {

constexpr int64_t kSmall = 4096;  // elements
constexpr int64_t kNotMeant = -1;

}  // namespace

// The copied weight is the last that is small: an output's bias has a gradient that is not 0.
WeightMarks::WeightMarks(const std::vector<ModelParameter>& parameters, const std::function<bool(size_t)>& is_meant) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const torch::Tensor& tensor = parameters[i].tensor;
    versions_.push_back(is_meant(i) ? tensor._version() : kNotMeant);
    if (!is_meant(i)) continue;
    if (!probe_ || tensor.numel() <= kSmall || tensor.numel() < parameters[*probe_].tensor.numel()) probe_ = i;
  }
  if (probe_) value_ = parameters[*probe_].tensor.detach().clone();
}

bool WeightMarks::versions_have_changed(const std::vector<ModelParameter>& parameters) const {
  for (size_t i = 0; i < versions_.size(); ++i)
    if (versions_[i] != kNotMeant && parameters[i].tensor._version() != versions_[i]) return true;
  return false;
}

bool WeightMarks::value_has_changed(const std::vector<ModelParameter>& parameters) const {
  return probe_ && !parameters[*probe_].tensor.equal(value_);
}

}  // namespace trireme::parallel
