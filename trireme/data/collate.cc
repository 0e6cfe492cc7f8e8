#include "trireme/data/collate.h"

#include <torch/torch.h>

#include <map>
#include <utility>

#include "trireme/core/error.h"

namespace trireme::data {
namespace {

/// Reads one sample at a time: samples of different shapes cannot be stacked. Leaves out bad ones where the pick says
/// so.
std::vector<Sample> samples_of(const Dataset& dataset, const Pick& pick) {
  std::vector<Sample> samples;
  for (size_t i = 0; i < pick.indices.size(); ++i) {
    const Batch one = dataset.batch(pick.only(i));
    if (one.data.size(0) == 0) continue;
    samples.push_back(row(one, 0));
    samples.back().index = pick.indices[i];
  }
  return samples;
}

void check_sequence(const Sample& first, const Sample& sample, size_t place) {
  const torch::Tensor &model = first.tensor(place), &tensor = sample.tensor(place);
  if (!tensor.defined() || tensor.dim() == 0)
    throw UsageError("pad_sequences: '{}' of sample {} is {} and has no length; name only tensors with a dimension",
                     first.names()[place], sample.index, tensor.defined() ? "a single number" : "undefined");
  if (tensor.dim() != model.dim() || tensor.sizes().slice(1) != model.sizes().slice(1))
    throw UsageError(
        "pad_sequences: the shape of '{}' is {} in sample {}, but {} in sample {}; only the first dimension may differ",
        first.names()[place], shape_text(model), first.index, shape_text(tensor), sample.index);
  if (tensor.scalar_type() != model.scalar_type())
    throw UsageError("pad_sequences: '{}' is {} in sample {}, but {} in sample {}; give all samples one type",
                     first.names()[place], torch::toString(model.scalar_type()), first.index,
                     torch::toString(tensor.scalar_type()), sample.index);
}

torch::Tensor filled(const std::vector<int64_t>& sizes, double value, const torch::Tensor& like) {
  torch::Tensor result = torch::full(sizes, value, like.options());
  const bool exact = like.is_floating_point() || torch::full({1}, value, like.options()).item<double>() == value;
  if (!exact)
    throw UsageError("pad_sequences: {} cannot be stored as {}; give a value that fits", value,
                     torch::toString(like.scalar_type()));
  return result;
}

/// Rows of the longest length.
torch::Tensor padded(const std::vector<Sample>& samples, size_t place, double value, const torch::Tensor& lengths) {
  const torch::Tensor& first = samples[0].tensor(place);
  std::vector<int64_t> sizes = first.sizes().vec();
  sizes[0] = lengths.max().item<int64_t>();
  sizes.insert(sizes.begin(), static_cast<int64_t>(samples.size()));
  const torch::Tensor rows = filled(sizes, value, first);
  for (size_t i = 0; i < samples.size(); ++i) {
    const torch::Tensor& tensor = samples[i].tensor(place);
    rows[static_cast<int64_t>(i)].narrow(0, 0, tensor.size(0)).copy_(tensor);
  }
  return rows;
}

torch::Tensor lengths_of(const std::vector<Sample>& samples, size_t place) {
  std::vector<int64_t> lengths;
  for (const Sample& sample : samples) {
    check_sequence(samples[0], sample, place);
    lengths.push_back(sample.tensor(place).size(0));
  }
  return torch::tensor(lengths, torch::kInt64);
}

}  // namespace

Collate::Collate(Shared dataset, CollateFunction function)
    : dataset_(std::move(dataset)), function_(std::move(function)) {
  if (!function_) throw UsageError("Collate: the function is empty");
}

Batch Collate::batch(const Pick& pick) const {
  const std::vector<Sample> samples = samples_of(*dataset_, pick);
  return samples.empty() ? stack(samples) : function_(samples);
}

CollateFunction pad_sequences(std::vector<Pad> pads) {
  if (pads.empty()) throw UsageError("pad_sequences: the list is empty; name the tensors to pad, such as {{\"data\"}}");
  return [pads = std::move(pads)](const std::vector<Sample>& samples) {
    check_names(samples);
    Batch batch = samples[0];
    batch.index = -1;
    std::map<size_t, const Pad*> pad_at;
    for (const Pad& pad : pads) pad_at[batch.place(pad.name)] = &pad;
    for (size_t place = 0; place < samples[0].size(); ++place) {
      if (!pad_at.contains(place)) {
        batch.tensor(place) = stack_at(place, samples);
        continue;
      }
      const torch::Tensor lengths = lengths_of(samples, place);
      batch.tensor(place) = padded(samples, place, pad_at[place]->value, lengths);
      batch.add(pad_at[place]->name + "_lengths", lengths);
    }
    return batch;
  };
}

}  // namespace trireme::data
