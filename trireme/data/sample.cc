#include "trireme/data/sample.h"

#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::data {
namespace {

std::string words_for(const Sample& sample) {
  return sample.index < 0 ? "one sample" : fmt::format("sample {}", sample.index);
}

[[noreturn]] void fail_for_shapes(size_t place, const Sample& one, const Sample& other) {
  const std::string& name = one.names()[place];
  throw UsageError(
      "a batch cannot be made: the shape of '{}' is {} in {}, but {} in {}; give all samples one shape in the dataset, "
      "or pad to the longest: data::Collate(dataset, data::pad_sequences({{{{\"{}\"}}}}))",
      name, shape_text(one.tensor(place)), words_for(one), shape_text(other.tensor(place)), words_for(other), name);
}

}  // namespace

Sample::Sample(std::vector<NamedTensor> tensors) {
  if (tensors.empty()) throw UsageError("data::Sample: the list of tensors is empty; name at least one");
  names_.clear();
  for (NamedTensor& one : tensors) add(std::move(one.name), std::move(one.tensor));
}

void Sample::add(std::string name, torch::Tensor tensor) {
  if (name.empty()) throw UsageError("data::Sample: tensor {} has an empty name", size());
  if (contains(name))
    throw UsageError("data::Sample: there are two tensors named '{}' (all: {})", name, join(names_, ", "));
  names_.push_back(std::move(name));
  if (size() > 2) more_.emplace_back();
  this->tensor(size() - 1) = std::move(tensor);
}

size_t Sample::find(std::string_view name) const {
  return static_cast<size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
}

size_t Sample::place(std::string_view name) const {
  const size_t found = find(name);
  if (found == size()) throw UsageError("data::Sample: there is no tensor '{}', only {}", name, join(names_, ", "));
  return found;
}

std::string shape_text(const torch::Tensor& tensor) {
  return tensor.defined() ? fmt::format("[{}]", fmt::join(tensor.sizes(), ", ")) : "undefined";
}

void check_names(const std::vector<Sample>& samples) {
  for (const Sample& sample : samples)
    if (sample.names() != samples[0].names())
      throw UsageError(
          "a batch cannot be made: {} has the tensors {}, but {} has {}; all samples of a dataset must have the same "
          "names in the same order",
          words_for(samples[0]), join(samples[0].names(), ", "), words_for(sample), join(sample.names(), ", "));
}

torch::Tensor stack_at(size_t place, const std::vector<Sample>& samples) {
  const torch::Tensor& first = samples[0].tensor(place);
  std::vector<torch::Tensor> tensors;
  for (const Sample& sample : samples) {
    const torch::Tensor& tensor = sample.tensor(place);
    const bool fits = tensor.defined() == first.defined() && (!first.defined() || tensor.sizes() == first.sizes());
    if (!fits) fail_for_shapes(place, samples[0], sample);
    tensors.push_back(tensor);
  }
  return first.defined() ? torch::stack(tensors) : torch::Tensor();
}

Batch stack(const std::vector<Sample>& samples) {
  if (samples.empty()) return {torch::empty({0}), torch::empty({0}, torch::kInt64)};
  check_names(samples);
  Batch batch = samples[0];
  batch.index = -1;
  for (size_t place = 0; place < batch.size(); ++place) batch.tensor(place) = stack_at(place, samples);
  return batch;
}

Sample row(const Batch& batch, int64_t i) {
  return batch.map([i](const torch::Tensor& rows) { return rows[i]; });
}

}  // namespace trireme::data
