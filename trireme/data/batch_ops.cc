#include "trireme/data/batch_ops.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/data/image/random.h"

namespace trireme::data {
namespace {

using image::Random;

/// The partner of each sample.
torch::Tensor permutation(int64_t count, Random& random) {
  auto order = torch::arange(count);
  auto* const values = order.data_ptr<int64_t>();
  for (int64_t i = count - 1; i > 0; --i) std::swap(values[i], values[random.below(static_cast<uint64_t>(i) + 1)]);
  return order;
}

void check_alpha(const char* who, double alpha) {
  if (!(alpha > 0)) throw UsageError("{}: alpha is {}; it must be above 0", who, alpha);
}

/// Masks and boxes would have to be mixed too, by a rule that only the user knows.
void check_pair(const char* who, const Batch& batch) {
  if (batch.size() > 2)
    throw UsageError("{}: the batch has the tensors {}, but only an input and its labels can be mixed; write a BatchOp",
                     who, join(batch.names(), ", "));
}

/// N x class_num. Labels that are soft already stay as they are.
torch::Tensor soft_labels(const torch::Tensor& target, int64_t class_num) {
  if (target.dim() == 2 && target.is_floating_point()) return target;
  const int64_t low = target.min().item<int64_t>(), high = target.max().item<int64_t>();
  if (low < 0 || high >= class_num)
    throw UsageError("batch operators: labels are from {} to {}, but with class_num {} they must be from 0 to {}", low,
                     high, class_num, class_num - 1);
  return torch::zeros({target.size(0), class_num}).scatter_(1, target.to(torch::kInt64).unsqueeze(1), 1.0);
}

torch::Tensor mixed(const torch::Tensor& target, const torch::Tensor& other, double lam, int64_t class_num) {
  if (class_num > 0) return soft_labels(other, class_num).lerp(soft_labels(target, class_num), lam);
  const auto share = torch::full({target.size(0)}, lam, torch::kFloat64);
  return torch::stack({target.to(torch::kFloat64), other.to(torch::kFloat64), share}, 1);
}

/// Where a piece of `length` around a random middle lies within [0, whole).
std::pair<int64_t, int64_t> piece(int64_t whole, int64_t length, Random& random) {
  const auto middle = static_cast<int64_t>(random.below(static_cast<uint64_t>(whole)));
  const int64_t begin = std::max<int64_t>(0, middle - length / 2);
  return {begin, std::max(begin, std::min(whole, middle + length / 2))};
}

int64_t part(int64_t whole, double share) {
  return static_cast<int64_t>(static_cast<double>(whole) * share);
}

}  // namespace

Batch Mixup::operator()(const Batch& batch, uint64_t draw) const {
  check_alpha("Mixup", alpha);
  check_pair("Mixup", batch);
  Random random(draw);
  const auto others = permutation(batch.data.size(0), random);
  const double lam = random.beta(alpha, alpha);
  return {batch.data.index_select(0, others).lerp_(batch.data, lam),
          mixed(batch.target, batch.target.index_select(0, others), lam, class_num)};
}

Batch CutMix::operator()(const Batch& batch, uint64_t draw) const {
  check_alpha("CutMix", alpha);
  check_pair("CutMix", batch);
  if (batch.data.dim() < 3) throw UsageError("CutMix: the batch has {} dimensions and no pictures", batch.data.dim());
  Random random(draw);
  const auto others = permutation(batch.data.size(0), random);
  const double side = std::sqrt(1 - random.beta(alpha, alpha));
  const int64_t height = batch.data.size(-2), width = batch.data.size(-1);
  const auto [top, bottom] = piece(height, part(height, side), random);
  const auto [left, right] = piece(width, part(width, side), random);
  const auto cut = [&, y = top, x = left, h = bottom - top, w = right - left](const torch::Tensor& pictures) {
    return pictures.narrow(-2, y, h).narrow(-1, x, w);
  };
  auto data = batch.data.clone();
  cut(data).copy_(cut(batch.data).index_select(0, others));
  const double seen = static_cast<double>((bottom - top) * (right - left)) / static_cast<double>(height * width);
  return {data, mixed(batch.target, batch.target.index_select(0, others), 1 - seen, class_num)};
}

OpSampler::OpSampler(std::vector<Choice> choices, int64_t class_num)
    : choices_(std::move(choices)), class_num_(class_num) {
  double sum = 0;
  for (const Choice& choice : choices_) {
    if (!(choice.prob >= 0)) throw UsageError("OpSampler: a probability is {}; it must be from 0 to 1", choice.prob);
    sum += choice.prob;
  }
  if (sum > 1 + 1e-9) throw UsageError("OpSampler: the probabilities are {} together; they may be 1 at most", sum);
}

Batch OpSampler::operator()(const Batch& batch, uint64_t draw) const {
  Random random({draw, 1});  // not the numbers the operator itself will draw
  double left = random.uniform();
  for (const Choice& choice : choices_) {
    if (left < choice.prob) return choice.op(batch, draw);
    left -= choice.prob;
  }
  check_pair("OpSampler", batch);
  return {batch.data, mixed(batch.target, batch.target, 1, class_num_)};
}

Sample BatchMap::get(int64_t index, uint64_t draw) const {
  return row(batch(Pick{{index}, {draw}, draw}), 0);
}

Batch BatchMap::batch(const Pick& pick) const {
  const Batch batch = dataset_->batch(pick);
  return batch.data.size(0) == 0 ? batch : op_(batch, pick.draw);
}

MixedLabels mixed_labels(const torch::Tensor& target) {
  if (target.dim() != 2 || target.size(1) != 3)
    throw UsageError("mixed_labels: the target has {} dimensions; it must be N x 3, as of a Mixup with class_num 0",
                     target.dim());
  return {target.select(1, 0).to(torch::kInt64), target.select(1, 1).to(torch::kInt64),
          target.select(1, 2).to(torch::kFloat32)};
}

}  // namespace trireme::data
