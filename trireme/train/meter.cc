#include "trireme/train/meter.h"

#include <fmt/ranges.h>
#include <torch/torch.h>

#include <cmath>

#include "trireme/train/ranks.h"

namespace trireme::train {
namespace {

// The numbers that the ranks exchange begin with these; then come the losses, then each metric's sums behind their
// count.
enum Slot : size_t { kRows, kBadStep, kBadValue, kFirstLoss };

// Of all ranks, the first step with a loss that is not finite.
std::optional<BadLoss> first_bad(const std::vector<std::vector<double>>& all) {
  std::optional<BadLoss> bad;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto step = static_cast<int64_t>(all[rank][kBadStep]);
    if (step < 0 || (bad && step > bad->step)) continue;
    if (!bad || step < bad->step) bad = BadLoss{step, {}, all[rank][kBadValue]};
    bad->ranks.push_back(static_cast<int>(rank));
  }
  return bad;
}

// The losses of a batch as one tensor, in float or double.
torch::Tensor stacked(const std::vector<torch::Tensor>& losses) {
  const auto type = losses.back().scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
  std::vector<torch::Tensor> numbers;
  for (const torch::Tensor& loss : losses) numbers.push_back(loss.detach().reshape({}).to(type));
  return torch::stack(numbers);
}

}  // namespace

std::vector<torch::Tensor> measure(const Metrics& metrics, const Tensors& outputs, const Tensors& labels) {
  std::vector<torch::Tensor> sums;
  for (const MetricUse& metric : metrics) sums.push_back(metric.measure(outputs, labels));
  return sums;
}

std::string BadLoss::ranks_text() const {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

Meter::Meter(std::vector<std::string> losses, Metrics metrics, const MeterOptions& options)
    : names_(std::move(losses)), metrics_(std::move(metrics)), options_(options) {
  reset();
}

void Meter::reset() {
  pending_.clear();
  rows_ = 0;
  bad_step_ = -1;
  losses_.assign(static_cast<size_t>(options_.slots) * names_.size(), 0);
  sums_.assign(metrics_.size(), {});
}

void Meter::add(const Batch& batch) {
  const torch::NoGradGuard no_grad;
  if (!batch.losses.empty())
    pending_.push_back(
        {batch.step, static_cast<size_t>(batch.slot), static_cast<double>(batch.rows), stacked(batch.losses)});
  for (size_t i = 0; i < batch.sums.size(); ++i) {
    const torch::Tensor added = batch.sums[i].to(torch::kDouble);
    sums_[i] = sums_[i].defined() ? sums_[i] + added : added;
  }
}

void Meter::settle() {
  if (pending_.empty()) return;
  std::vector<torch::Tensor> all;
  for (const Pending& one : pending_) all.push_back(one.losses);
  const torch::Tensor values = torch::stack(all).to(torch::kDouble).cpu();
  const double* value = values.const_data_ptr<double>();
  for (const Pending& one : pending_) {
    for (size_t i = 0; i < names_.size(); ++i) losses_[one.slot * names_.size() + i] += *value++ * one.rows;
    rows_ += one.rows;
    if (bad_step_ >= 0 || std::isfinite(value[-1])) continue;
    bad_step_ = static_cast<double>(one.step);
    bad_value_ = value[-1];
  }
  pending_.clear();
}

std::vector<double> Meter::packed() const {
  std::vector<double> numbers = {rows_, bad_step_, bad_value_};
  numbers.insert(numbers.end(), losses_.begin(), losses_.end());
  for (const torch::Tensor& sums : sums_) {
    const torch::Tensor here = sums.defined() ? sums.cpu().contiguous() : torch::empty({0}, torch::kDouble);
    numbers.push_back(static_cast<double>(here.numel()));
    numbers.insert(numbers.end(), here.const_data_ptr<double>(), here.const_data_ptr<double>() + here.numel());
  }
  return numbers;
}

Measured Meter::measured(const Ranks& ranks) {
  settle();
  return unpacked(ranks.numbers_of_all(packed()));
}

Results Meter::own() {
  settle();
  return unpacked({packed()}).results;
}

Measured Meter::unpacked(const std::vector<std::vector<double>>& all) const {
  Measured measured{.bad = first_bad(all)};
  if (!options_.metrics_first) name_losses(all, measured.results);
  name_metrics(all, measured.results);
  if (options_.metrics_first) name_losses(all, measured.results);
  return measured;
}

void Meter::name_losses(const std::vector<std::vector<double>>& all, Results& results) const {
  double rows = 0;
  std::vector<double> slots(losses_.size(), 0);
  for (const std::vector<double>& one : all) {
    rows += one[kRows];
    for (size_t i = 0; i < slots.size(); ++i) slots[i] += one[kFirstLoss + i];
  }
  if (rows == 0) return;
  for (size_t i = 0; i < names_.size(); ++i) {
    double sum = 0;
    for (size_t at = i; at < slots.size(); at += names_.size()) sum += slots[at];
    results.set(names_[i], sum / rows);
  }
}

// A rank without samples has no sums. A metric of no samples at all has no result.
void Meter::name_metrics(const std::vector<std::vector<double>>& all, Results& results) const {
  std::vector<size_t> at(all.size(), kFirstLoss + losses_.size());
  for (const MetricUse& metric : metrics_) {
    torch::Tensor sums;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const auto count = static_cast<size_t>(all[rank][at[rank]]);
      const double* first = all[rank].data() + at[rank] + 1;
      at[rank] += count + 1;
      if (count == 0) continue;
      const torch::Tensor one = torch::tensor(at::ArrayRef<double>(first, count), torch::kDouble);
      sums = sums.defined() ? sums + one : one;
    }
    if (!sums.defined()) continue;
    const std::vector<std::string> names = metric->names();
    const std::vector<double> values = metric->result(sums);
    for (size_t i = 0; i < names.size(); ++i) results.set(names[i], values[i]);
  }
}

}  // namespace trireme::train
