#include "trireme/train/eval_shard.h"

#include <torch/torch.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "trireme/core/error.h"

namespace trireme::train {
namespace {

int64_t ceiling(int64_t count, int64_t unit) {
  return (count + unit - 1) / unit;
}

const data::Dataset& checked(const data::Dataset* whole, int64_t batch_size) {
  if (whole == nullptr) throw UsageError("Model: the dataset is a null pointer");
  if (whole->size() < 1) throw UsageError("Model: the dataset is empty; there must be at least one sample");
  if (batch_size < 1) throw UsageError("Model: batch_size is {}; it must be at least 1", batch_size);
  return *whole;
}

}  // namespace

EvalShard::EvalShard(std::shared_ptr<const data::Dataset> whole, int64_t batch_size, RankInfo me,
                     std::optional<int64_t> limit)
    : whole_(std::move(whole)),
      batch_size_(batch_size),
      me_(me),
      batches_(ceiling(checked(whole_.get(), batch_size).size(), batch_size)) {
  if (limit) batches_ = std::min(batches_, std::max<int64_t>(*limit, 0) * me.size);
}

int64_t EvalShard::steps_of(int rank) const {
  return batches_ > rank ? ceiling(batches_ - rank, me_.size) : 0;
}

int64_t EvalShard::rows(int64_t batch) const {
  return std::min(batch_size_, whole_->size() - batch * batch_size_);
}

// Only the last batch of all may be short, and it is the last of its rank.
int64_t EvalShard::size() const {
  return steps() == 0 ? 0 : (steps() - 1) * batch_size_ + rows(batch_number(steps() - 1));
}

int64_t EvalShard::samples() const {
  return std::min(batches_ * batch_size_, whole_->size());
}

int64_t EvalShard::sample(int64_t index) const {
  return batch_number(index / batch_size_) * batch_size_ + index % batch_size_;
}

std::vector<int64_t> EvalShard::samples_of(std::span<const int64_t> indices) const {
  std::vector<int64_t> samples;
  for (const int64_t index : indices) samples.push_back(sample(index));
  return samples;
}

data::Pick EvalShard::pick_of(std::vector<int64_t> samples, int64_t image_size) {
  std::vector<uint64_t> draws;
  for (const int64_t sample : samples) draws.push_back(data::mix(sample));
  data::Pick pick = data::Pick::of(std::move(samples), std::move(draws), image_size);
  pick.leave_out_bad = true;
  return pick;
}

data::Batch EvalShard::batch(const data::Pick& pick) const {
  return whole_->batch(pick_of(samples_of(pick.indices), pick.image_size));
}

torch::Tensor EvalShard::with_gaps(const torch::Tensor& outputs, int64_t step) const {
  const int64_t batch = batch_number(step);
  if (outputs.size(0) == rows(batch)) return outputs;
  std::vector<int64_t> samples(static_cast<size_t>(rows(batch)));
  std::iota(samples.begin(), samples.end(), batch * batch_size_);
  const std::vector<size_t> places = data::present(*whole_, pick_of(samples, 0));
  std::vector<int64_t> sizes = outputs.sizes().vec();
  sizes[0] = rows(batch);
  const double none = outputs.is_floating_point() ? std::numeric_limits<double>::quiet_NaN() : -1;
  torch::Tensor all = torch::full(sizes, none, outputs.options());
  for (size_t i = 0; i < places.size(); ++i)
    all[static_cast<int64_t>(places[i])].copy_(outputs[static_cast<int64_t>(i)]);
  return all;
}

torch::Tensor EvalShard::in_order(const std::vector<torch::Tensor>& by_rank) const {
  std::vector<torch::Tensor> parts;
  for (int64_t batch = 0; batch < batches_; ++batch)
    parts.push_back(
        by_rank[static_cast<size_t>(batch % me_.size)].narrow(0, batch / me_.size * batch_size_, rows(batch)));
  return torch::cat(parts);
}

}  // namespace trireme::train
