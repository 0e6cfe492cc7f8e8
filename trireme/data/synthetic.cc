#include "trireme/data/synthetic.h"

#include <torch/torch.h>

#include <algorithm>

#include "trireme/core/error.h"

namespace trireme::data {
namespace {

/// Uniform with mean 0 and variance 1: from -sqrt(3) to sqrt(3), in steps of 2^-23 of that.
float number(uint64_t seed, uint64_t i) {
  constexpr float kSqrt3 = 1.7320508f;
  return (static_cast<float>(scramble(seed + i) >> 40) * 0x1p-23f - 1) * kSqrt3;
}

void check(const SyntheticOptions& options) {
  const bool shape_fits =
      std::all_of(options.shape.begin(), options.shape.end(), [](int64_t size) { return size > 0; });
  if (options.samples < 1 || options.class_num < 1 || !shape_fits)
    throw UsageError("Synthetic: {} samples of {} classes with {} dimensions; all sizes must be 1 or more",
                     options.samples, options.class_num, options.shape.size());
}

}  // namespace

Synthetic::Synthetic(const SyntheticOptions& options) : options_(options) {
  check(options);
}

Sample Synthetic::get(int64_t index) const {
  const Batch one = make({&index, 1}, 0);
  return {one.data[0], one.target[0]};
}

Batch Synthetic::batch(std::span<const int64_t> indices) const {
  return make(indices, 0);
}

Batch Synthetic::batch(const Pick& pick) const {
  return make(pick.indices, pick.image_size);
}

Batch Synthetic::make(std::span<const int64_t> indices, int64_t image_size) const {
  std::vector<int64_t> shape = options_.shape;
  if (image_size > 0 && shape.size() >= 2) shape.end()[-2] = shape.end()[-1] = image_size;
  shape.insert(shape.begin(), static_cast<int64_t>(indices.size()));
  Batch batch{torch::empty(shape), torch::empty({shape[0]}, torch::kInt64)};
  auto* out = batch.data.data_ptr<float>();
  auto* target = batch.target.data_ptr<int64_t>();
  const uint64_t elements = indices.empty() ? 0 : static_cast<uint64_t>(batch.data.numel() / shape[0]);
  for (const int64_t index : indices) {
    TORCH_CHECK_INDEX(index >= 0 && index < size(), "sample ", index, " of a dataset of ", size());
    const uint64_t own = mix(options_.seed, index);
    for (uint64_t i = 0; i < elements; ++i) *out++ = number(own, i);
    *target++ = static_cast<int64_t>(mix(own, 1) % static_cast<uint64_t>(options_.class_num));
  }
  return batch;
}

}  // namespace trireme::data
