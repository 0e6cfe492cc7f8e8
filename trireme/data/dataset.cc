#include "trireme/data/dataset.h"

#include <torch/torch.h>

#include <vector>

namespace trireme::data {

Batch Dataset::batch(std::span<const int64_t> indices) const {
  std::vector<torch::Tensor> data, targets;
  for (const int64_t index : indices) {
    Sample sample = get(index);
    data.push_back(std::move(sample.data));
    targets.push_back(std::move(sample.target));
  }
  return {torch::stack(data), torch::stack(targets)};
}

}  // namespace trireme::data
