#include "trireme/data/wrappers.h"

#include <torch/torch.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <unordered_set>

#include "trireme/core/error.h"
#include "trireme/core/thread_annotations.h"
#include "trireme/data/order/shuffle.h"

namespace trireme::data {
namespace {

std::vector<int64_t> range(int64_t first, int64_t count, int64_t size) {
  if (first < 0 || count < 0 || first > size || count > size - first)
    throw UsageError("Subset: samples {} to {} are wanted, but the dataset has {}", first, first + count - 1, size);
  std::vector<int64_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), first);
  return indices;
}

/// The tensors at one place of several batches, one behind the other.
torch::Tensor joined(const std::vector<Batch>& batches, size_t place) {
  std::vector<torch::Tensor> tensors;
  for (const Batch& batch : batches) {
    const torch::Tensor &first = batches[0].tensor(place), &tensor = batch.tensor(place);
    if (tensor.sizes().slice(1) != first.sizes().slice(1))
      throw UsageError(
          "Concat: a batch has '{}' of shape {} from one dataset, but {} from another; give all one shape, "
          "or put Collate around Concat, not inside",
          batch.names()[place], shape_text(first), shape_text(tensor));
    tensors.push_back(tensor);
  }
  return torch::cat(tensors);
}

/// Rows of several batches, one behind the other, put back where they belong: row i goes to places[i].
Batch put_together(std::vector<Batch> batches, const std::vector<int64_t>& places) {
  if (batches.size() == 1) return batches[0];
  const Batch none = batches[0];
  std::erase_if(batches, [](const Batch& batch) { return batch.data.size(0) == 0; });  // all bad: of no shape
  if (batches.empty()) return none;
  check_names(batches);
  const auto order = torch::tensor(places).argsort();
  Batch all = batches[0];
  for (size_t place = 0; place < all.size(); ++place)
    if (all.tensor(place).defined()) all.tensor(place) = joined(batches, place).index_select(0, order);
  return all;
}

}  // namespace

void Shared::check() const {
  if (!dataset_) throw UsageError("a dataset to be wrapped is a null pointer");
}

Sample Map::get(int64_t index, uint64_t draw) const {
  return function_(dataset_->get(index, draw), draw);
}

Batch Map::batch(const Pick& pick) const {
  std::vector<Sample> samples;
  for (size_t i = 0; i < pick.indices.size(); ++i) {
    const Batch one = dataset_->batch(pick.only(i));  // rather than get(): it knows the image size
    if (one.data.size(0) == 0) continue;
    samples.push_back(function_(row(one, 0), pick.draws[i]));
    samples.back().index = pick.indices[i];
  }
  return stack(samples);
}

Subset::Subset(Shared dataset, std::vector<int64_t> indices)
    : dataset_(std::move(dataset)), indices_(std::make_shared<const std::vector<int64_t>>(std::move(indices))) {
  std::vector<bool> seen(static_cast<size_t>(dataset_->size()));
  for (const int64_t index : *indices_) {
    if (index < 0 || index >= dataset_->size())
      throw UsageError("Subset: there is no sample {} in a dataset of {}", index, dataset_->size());
    if (!seen[static_cast<size_t>(index)]) ++different_;
    seen[static_cast<size_t>(index)] = true;
  }
}

Subset::Subset(const Shared& dataset, int64_t first, int64_t count)
    : Subset(dataset, range(first, count, dataset->size())) {}

Sample Subset::get(int64_t index, uint64_t draw) const {
  return dataset_->get(indices_->at(static_cast<size_t>(index)), draw);
}

Batch Subset::batch(const Pick& pick) const {
  Pick inner = pick;
  for (int64_t& index : inner.indices) index = indices_->at(static_cast<size_t>(index));
  return dataset_->batch(inner);
}

BadSamples Subset::bad() const {
  BadSamples all = dataset_->bad();
  if (all.samples == 0) return all;
  std::unordered_set<int64_t> left(all.numbers.begin(), all.numbers.end());
  all.samples = different_;
  all.numbers.clear();
  for (size_t i = 0; i < indices_->size() && !left.empty(); ++i)
    if (left.erase((*indices_)[i]) > 0) all.numbers.push_back(static_cast<int64_t>(i));
  return all;
}

Subset shuffled(Shared dataset, uint64_t seed) {
  const auto order = torch_randperm(static_cast<uint32_t>(dataset->size()), seed);
  return {std::move(dataset), std::vector<int64_t>(order.begin(), order.end())};
}

Concat::Concat(std::vector<Shared> parts) : parts_(std::move(parts)) {
  if (parts_.empty()) throw UsageError("Concat: there is no dataset to begin with");
  int64_t end = 0;
  for (const Shared& part : parts_) ends_.push_back(end += part->size());
}

size_t Concat::part_of(int64_t index) const {
  TORCH_CHECK_INDEX(index >= 0 && index < size(), "sample ", index, " of a dataset of ", size());
  return static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
}

Sample Concat::get(int64_t index, uint64_t draw) const {
  const size_t part = part_of(index);
  return parts_[part]->get(part == 0 ? index : index - ends_[part - 1], draw);
}

Batch Concat::batch(const Pick& pick) const {
  std::vector<Pick> shares(parts_.size(), Pick{{}, {}, pick.draw, pick.image_size, pick.leave_out_bad});
  std::vector<std::vector<int64_t>> places(parts_.size());
  for (size_t i = 0; i < pick.indices.size(); ++i) {
    const size_t part = part_of(pick.indices[i]);
    shares[part].indices.push_back(part == 0 ? pick.indices[i] : pick.indices[i] - ends_[part - 1]);
    shares[part].draws.push_back(pick.draws[i]);
    places[part].push_back(static_cast<int64_t>(i));
  }
  std::vector<Batch> batches;
  std::vector<int64_t> all_places;
  for (size_t part = 0; part < parts_.size(); ++part) {
    if (places[part].empty()) continue;
    batches.push_back(parts_[part]->batch(shares[part]));
    const bool whole = batches.back().data.size(0) == static_cast<int64_t>(places[part].size());
    if (whole)
      all_places.insert(all_places.end(), places[part].begin(), places[part].end());
    else
      for (const size_t i : present(*parts_[part], shares[part])) all_places.push_back(places[part][i]);
  }
  return put_together(std::move(batches), all_places);
}

// Parts that are never bad count as samples too: they remain when all of another part is bad.
BadSamples Concat::bad() const {
  BadSamples all;
  bool possible = false;
  for (size_t part = 0; part < parts_.size(); ++part) {
    const BadSamples one = parts_[part]->bad();
    const int64_t begin = part == 0 ? 0 : ends_[part - 1];
    for (const int64_t number : one.numbers) all.numbers.push_back(begin + number);
    possible |= one.samples > 0;
    all.samples += one.samples > 0 ? one.samples : parts_[part]->size();
    all.allowed += one.allowed;
    all.first.insert(all.first.end(), one.first.begin(), one.first.end());
  }
  return possible ? all : BadSamples{};
}

struct Cache::Slots {
  Mutex mutex;
  std::vector<Sample> samples TRIREME_GUARDED_BY(mutex);  // undefined tensors: not read yet, or bad
  std::unordered_set<int64_t> bad TRIREME_GUARDED_BY(mutex);
};

Cache::Cache(Shared dataset) : dataset_(std::move(dataset)), slots_(std::make_shared<Slots>()) {
  slots_->samples.resize(static_cast<size_t>(dataset_->size()));
}

// Reads without holding the lock, so that threads read in parallel; two of them may read the same sample.
std::optional<Sample> Cache::unless_bad(int64_t index) const {
  const auto at = static_cast<size_t>(index);
  {
    const std::lock_guard lock(slots_->mutex);
    if (const Sample& kept = slots_->samples.at(at); kept.data.defined()) return kept;
    if (slots_->bad.contains(index)) return std::nullopt;
  }
  const Batch one = dataset_->batch(Pick{{index}, {0}, 0, 0, true});
  const std::lock_guard lock(slots_->mutex);
  if (one.data.size(0) > 0) return slots_->samples[at] = row(one, 0);
  slots_->bad.insert(index);
  return std::nullopt;
}

Sample Cache::get(int64_t index) const {
  const std::optional<Sample> sample = unless_bad(index);
  return sample ? *sample : dataset_->get(index);
}

Batch Cache::batch(const Pick& pick) const {
  std::vector<Sample> samples;
  for (const int64_t index : pick.indices) {
    std::optional<Sample> sample = pick.leave_out_bad ? unless_bad(index) : get(index);
    if (!sample) continue;
    sample->index = index;
    samples.push_back(std::move(*sample));
  }
  return stack(samples);
}

}  // namespace trireme::data
