#include "trireme/train/trainer/scores.h"

#include <torch/torch.h>

#include <cmath>

namespace trireme::trainer {
namespace {

// What the ranks tell each other begins with these; then come the losses' sums, then each metric's behind their number.
enum At : size_t { kRows, kBadIter, kBadValue, kFirstLoss };

std::optional<Scores::BadLoss> first_bad(const std::vector<std::vector<double>>& all) {
  std::optional<Scores::BadLoss> bad;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto iter = static_cast<int64_t>(all[rank][kBadIter]);
    if (iter < 0 || (bad && iter > bad->iter)) continue;
    if (!bad || iter < bad->iter) bad = Scores::BadLoss{iter, {}, all[rank][kBadValue]};
    bad->ranks.push_back(static_cast<int>(rank));
  }
  return bad;
}

}  // namespace

Scores::Scores(std::vector<std::string> losses, std::vector<RoleMetric> metrics, Order order)
    : losses_(std::move(losses)), metrics_(std::move(metrics)), order_(order) {
  losses_.emplace_back("loss");
  reset();
}

void Scores::reset() {
  pending_.clear();
  sums_.assign(losses_.size(), 0);
  rows_ = 0;
  bad_iter_ = -1;
  measured_.assign(metrics_.size(), {});
}

void Scores::add(const Batch& batch) {
  const torch::NoGradGuard no_grad;
  if (batch.losses.total.defined()) {
    std::vector<torch::Tensor> values;
    for (const torch::Tensor& one : batch.losses.each) values.push_back(one.detach().reshape({}).to(torch::kFloat));
    values.push_back(batch.losses.total.detach().reshape({}).to(torch::kFloat));
    pending_.push_back({batch.iter, static_cast<double>(batch.outputs.main().size(0)), torch::stack(values)});
  }
  if (batch.labels.labelled == 0) return;
  const Outputs outputs = batch.outputs.first(batch.labels.labelled);
  for (size_t i = 0; i < metrics_.size(); ++i) {
    const torch::Tensor& scores = metrics_[i].role.empty() ? outputs.main() : outputs.of(metrics_[i].role);
    const torch::Tensor added = metrics_[i].metric->measure(scores.detach(), batch.labels.target).to(torch::kDouble);
    measured_[i] = measured_[i].defined() ? measured_[i] + added : added;
  }
}

void Scores::settle() {
  for (const Pending& one : pending_) {
    const torch::Tensor losses = one.losses.to(torch::kDouble).cpu();
    for (size_t i = 0; i < losses_.size(); ++i) sums_[i] += losses[static_cast<int64_t>(i)].item<double>() * one.rows;
    rows_ += one.rows;
    const double total = losses[-1].item<double>();
    if (bad_iter_ >= 0 || std::isfinite(total)) continue;
    bad_iter_ = static_cast<double>(one.iter);
    bad_value_ = total;
  }
  pending_.clear();
}

std::vector<double> Scores::packed() const {
  std::vector<double> numbers = {rows_, bad_iter_, bad_value_};
  numbers.insert(numbers.end(), sums_.begin(), sums_.end());
  for (const torch::Tensor& sums : measured_) {
    const torch::Tensor here = sums.defined() ? sums.cpu().contiguous() : torch::empty({0}, torch::kDouble);
    numbers.push_back(static_cast<double>(here.numel()));
    numbers.insert(numbers.end(), here.const_data_ptr<double>(), here.const_data_ptr<double>() + here.numel());
  }
  return numbers;
}

Scores::Total Scores::total(const Team& team) {
  settle();
  return total_of(team.numbers_of_all(packed()));
}

Results Scores::own() {
  settle();
  return total_of({packed()}).results;
}

Scores::Total Scores::total_of(const std::vector<std::vector<double>>& all) const {
  std::vector<double> sums(kFirstLoss + losses_.size(), 0);
  for (const std::vector<double>& one : all)
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += one[i];
  Total total{.bad = first_bad(all)};
  if (order_ == Order::losses_first) name_losses(sums, total.results);
  name_metrics(all, total.results);
  if (order_ == Order::metrics_first) name_losses(sums, total.results);
  return total;
}

void Scores::name_losses(const std::vector<double>& sums, Results& results) const {
  if (sums[kRows] == 0) return;
  for (size_t i = 0; i < losses_.size(); ++i) results.set(losses_[i], sums[kFirstLoss + i] / sums[kRows]);
}

// A rank without labelled samples has no sums, and nothing to add.
void Scores::name_metrics(const std::vector<std::vector<double>>& all, Results& results) const {
  std::vector<size_t> at(all.size(), kFirstLoss + losses_.size());
  for (const RoleMetric& metric : metrics_) {
    torch::Tensor sums;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const auto count = static_cast<size_t>(all[rank][at[rank]]);
      const torch::Tensor one =
          torch::tensor(at::ArrayRef<double>(all[rank].data() + at[rank] + 1, count), torch::kDouble);
      at[rank] += count + 1;
      if (count > 0) sums = sums.defined() ? sums + one : one;
    }
    if (!sums.defined()) continue;
    const std::vector<std::string> names = metric.metric->names();
    const std::vector<double> values = metric.metric->result(sums);
    for (size_t i = 0; i < names.size(); ++i) results.set(names[i], values[i]);
  }
}

}  // namespace trireme::trainer
