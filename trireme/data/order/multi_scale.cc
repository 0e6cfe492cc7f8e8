#include "trireme/data/order/multi_scale.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/data/order/mix.h"

namespace trireme::data {
namespace {

constexpr int64_t kMaxSide = 1 << 16;  // its square still fits

}  // namespace

void check(const MultiScale& options) {
  if (options.divided_factor < 1)
    throw UsageError("multi-scale: divided_factor is {}; it must be 1 or more", options.divided_factor);
  const int64_t smallest = options.is_training ? options.divided_factor : 1;
  for (const int64_t scale : options.scales)
    if (scale < smallest || scale > kMaxSide)
      throw UsageError("multi-scale: an image size is {}; it must be from {} to {}", scale, smallest, kMaxSide);
}

std::vector<ScaledBatch> scale_choices(const MultiScale& options, int64_t batch_size) {
  const int64_t first = options.scales.front();
  if (!options.is_training) return {{first, batch_size}};
  std::vector<ScaledBatch> choices;
  for (const int64_t scale : options.scales) {
    const int64_t size = scale / options.divided_factor * options.divided_factor;
    choices.push_back({size, std::max<int64_t>(1, first * first * batch_size / (size * size))});
  }
  return choices;
}

ScaledSteps scaled_steps(const std::vector<ScaledBatch>& choices, const ScaledRange& range) {
  ScaledSteps steps{{range.begin}, {}};
  for (int64_t at = range.begin; at < range.length;) {
    const ScaledBatch& choice = choices[mix(range.seed, at) % choices.size()];
    const int64_t end = at + choice.batch_size * range.ranks;
    if (end > range.length && range.drop_last) break;
    at = std::min(end, range.length);
    steps.begins.push_back(at);
    steps.image_sizes.push_back(choice.image_size);
  }
  return steps;
}

}  // namespace trireme::data
