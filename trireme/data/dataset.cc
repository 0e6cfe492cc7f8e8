#include "trireme/data/dataset.h"

#include <torch/torch.h>

#include <vector>

namespace trireme::data {
namespace {

template <typename Get>
Batch stack_each(const std::vector<int64_t>& indices, const Get& get) {
  std::vector<Sample> samples;
  for (size_t i = 0; i < indices.size(); ++i) {
    samples.push_back(get(i));
    samples.back().index = indices[i];
  }
  return stack(samples);
}

}  // namespace

Batch Dataset::batch(std::span<const int64_t> indices) const {
  return stack_each({indices.begin(), indices.end()}, [&](size_t i) { return get(indices[i]); });
}

Sample Dataset::get(int64_t index, uint64_t /*draw*/) const {
  return get(index);
}

Batch Dataset::batch(const Pick& pick) const {
  return batch(std::span(pick.indices));
}

std::vector<size_t> present(const Dataset& dataset, const Pick& pick) {
  std::vector<size_t> places;
  for (size_t i = 0; i < pick.indices.size(); ++i)
    if (dataset.batch(pick.only(i)).data.size(0) > 0) places.push_back(i);
  return places;
}

Batch RandomDataset::batch(const Pick& pick) const {
  return stack_each(pick.indices, [&](size_t i) { return get(pick.indices[i], pick.draws[i]); });
}

Batch RandomDataset::batch(std::span<const int64_t> indices) const {
  return batch(Pick{{indices.begin(), indices.end()}, std::vector<uint64_t>(indices.size(), 0)});
}

}  // namespace trireme::data
