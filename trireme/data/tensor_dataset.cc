#include "trireme/data/tensor_dataset.h"

#include <torch/torch.h>

#include <string>
#include <utility>

#include "trireme/core/error.h"

namespace trireme::data {
namespace {

void check_rows(const torch::Tensor& tensor, const std::string& name) {
  if (!tensor.defined() || tensor.dim() < 1)
    throw UsageError("TensorDataset: {} must be a tensor with one row a sample, but it is {}", name,
                     tensor.defined() ? "a single number" : "undefined");
}

}  // namespace

TensorDataset::TensorDataset(torch::Tensor data, torch::Tensor target)
    : TensorDataset(Batch(std::move(data), std::move(target))) {}

TensorDataset::TensorDataset(Batch rows) : rows_(std::move(rows)) {
  for (size_t i = 0; i < rows_.size(); ++i) {
    check_rows(rows_.tensor(i), rows_.names()[i]);
    if (rows_.tensor(i).size(0) != size())
      throw UsageError("TensorDataset: {} has {} rows, but {} has {}", rows_.names()[0], size(), rows_.names()[i],
                       rows_.tensor(i).size(0));
  }
}

Sample TensorDataset::get(int64_t index) const {
  return row(rows_, index);
}

Batch TensorDataset::batch(std::span<const int64_t> indices) const {
  const auto numbers = torch::tensor(at::ArrayRef<int64_t>(indices.data(), indices.size()));
  return rows_.map([&](const torch::Tensor& rows) { return rows.index_select(0, numbers.to(rows.device())); });
}

}  // namespace trireme::data
