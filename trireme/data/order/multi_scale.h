// Batches of changing image size, as PaddleClas' MultiScaleSampler makes them: a large image comes in a small batch, so
// that each step has about the same number of pixels.
//
//   MultiScale scales{.scales = {160, 224, 320}};
//   scale_choices(scales, 500);                      // 160: 500, 224: 255, 320: 125
//
// Which size a step has depends on the seed and on how much was consumed before it, so it is the same on every rank, in
// every epoch (as PaddleClas', whose list of batches is made once) and in a run that goes on in the middle. Unlike
// PaddleClas' sampler ours neither leaves samples out nor fills the last batch up: each is seen as without scales.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme::data {

struct MultiScale {
  /// Image sizes; batch_size is for the first of them. Empty: images keep their size.
  std::vector<int64_t> scales = {};
  int64_t divided_factor = 32;  ///< sizes are rounded down to a multiple of this
  bool is_training = true;      ///< false: always the first size, as it stands
};

struct ScaledBatch {
  int64_t image_size = 0;
  int64_t batch_size = 0;  ///< per rank
  bool operator==(const ScaledBatch&) const = default;
};

/// Throws UsageError that names a size out of range.
void check(const MultiScale& options);

/// What a step may be. Requires at least one scale.
std::vector<ScaledBatch> scale_choices(const MultiScale& options, int64_t batch_size);

/// The steps that deal out samples [begin, length) of an order to `ranks`.
struct ScaledSteps {
  std::vector<int64_t> begins;       ///< one more than there are steps: the last is where the last step ends
  std::vector<int64_t> image_sizes;  ///< of each step
};

struct ScaledRange {
  int64_t begin = 0;
  int64_t length = 0;
  int64_t ranks = 1;
  bool drop_last = false;  ///< leave out a last step that is smaller than its size wants
  uint64_t seed = 0;
};

ScaledSteps scaled_steps(const std::vector<ScaledBatch>& choices, const ScaledRange& range);

}  // namespace trireme::data
