// Samples that lie in two tensors, one row each.
//
//   data::TensorDataset points(torch::randn({1000, 4}), torch::randint(0, 3, {1000}));
#pragma once

#include "trireme/data/dataset.h"

namespace trireme::data {

class TensorDataset : public Dataset {
 public:
  using Dataset::batch;
  using Dataset::get;
  /// Shares the tensors' memory. Throws UsageError when their first dimensions differ.
  TensorDataset(torch::Tensor data, torch::Tensor target);

  int64_t size() const override { return data_.size(0); }
  Sample get(int64_t index) const override;
  Batch batch(std::span<const int64_t> indices) const override;

 private:
  torch::Tensor data_;
  torch::Tensor target_;
};

}  // namespace trireme::data
