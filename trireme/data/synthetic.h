// Random pictures, for trials and timing: the same seed and index always give the same numbers.
//
//   data::Synthetic noise({.samples = 1'280'000, .shape = {3, 224, 224}, .class_num = 1000});
#pragma once

#include <vector>

#include "trireme/data/dataset.h"

namespace trireme::data {

struct SyntheticOptions {
  int64_t samples = 1000;
  std::vector<int64_t> shape = {3, 224, 224};  ///< of one sample
  int64_t class_num = 1000;
  uint64_t seed = 0;
};

/// Values are uniform with mean 0 and variance 1, labels are from 0 to class_num - 1. Nothing is kept in memory.
class Synthetic : public Dataset {
 public:
  using Dataset::get;
  /// Throws UsageError for numbers below 1.
  explicit Synthetic(const SyntheticOptions& options);

  int64_t size() const override { return options_.samples; }
  Sample get(int64_t index) const override;
  Batch batch(std::span<const int64_t> indices) const override;
  /// With an image size, the last two dimensions become that.
  Batch batch(const Pick& pick) const override;

 private:
  Batch make(std::span<const int64_t> indices, int64_t image_size) const;
  SyntheticOptions options_;
};

}  // namespace trireme::data
