// Samples that lie in two or more tensors, one row each.
//
//   data::TensorDataset points(torch::randn({1000, 4}), torch::randint(0, 3, {1000}));
//   data::TensorDataset scenes({{"image", images}, {"mask", masks}, {"depth", depths}});
#pragma once

#include "trireme/data/dataset.h"

namespace trireme::data {

class TensorDataset : public Dataset {
 public:
  using Dataset::batch;
  using Dataset::get;
  /// Shares the tensors' memory. Throws UsageError when their first dimensions differ.
  TensorDataset(torch::Tensor data, torch::Tensor target);
  explicit TensorDataset(Batch rows);

  int64_t size() const override { return rows_.data.size(0); }
  Sample get(int64_t index) const override;
  Batch batch(std::span<const int64_t> indices) const override;

 private:
  Batch rows_;
};

}  // namespace trireme::data
