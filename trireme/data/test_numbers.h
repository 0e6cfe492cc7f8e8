// For the tests of the module: a dataset whose samples hold their index.
#pragma once

#include <torch/types.h>

#include <vector>

#include "trireme/data/tensor_dataset.h"

namespace trireme::data {

/// Sample i is (i, 10 i).
inline TensorDataset numbers(int64_t count) {
  return {torch::arange(count), torch::arange(count) * 10};
}

inline std::vector<int64_t> values(const torch::Tensor& tensor) {
  return {tensor.data_ptr<int64_t>(), tensor.data_ptr<int64_t>() + tensor.numel()};
}

}  // namespace trireme::data
