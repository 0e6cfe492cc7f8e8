#include "trireme/data/tensor_dataset.h"

#include <torch/torch.h>

#include <utility>

#include "trireme/core/error.h"

namespace trireme::data {
namespace {

void check_rows(const torch::Tensor& tensor, const char* name) {
  if (!tensor.defined() || tensor.dim() < 1)
    throw UsageError("TensorDataset: {} must be a tensor with one row a sample, but it is {}", name,
                     tensor.defined() ? "a single number" : "undefined");
}

}  // namespace

TensorDataset::TensorDataset(torch::Tensor data, torch::Tensor target)
    : data_(std::move(data)), target_(std::move(target)) {
  check_rows(data_, "data");
  check_rows(target_, "target");
  if (data_.size(0) != target_.size(0))
    throw UsageError("TensorDataset: data has {} rows, but target has {}", data_.size(0), target_.size(0));
}

Sample TensorDataset::get(int64_t index) const {
  return {data_[index], target_[index]};
}

Batch TensorDataset::batch(std::span<const int64_t> indices) const {
  const auto rows = torch::tensor(at::ArrayRef<int64_t>(indices.data(), indices.size()));
  return {data_.index_select(0, rows.to(data_.device())), target_.index_select(0, rows.to(target_.device()))};
}

}  // namespace trireme::data
