#include "trireme/train/meter.h"

#include <torch/torch.h>

#include <cmath>

#include "trireme/train/team.h"

namespace trireme {
namespace {

// What the ranks tell each other begins with these; then come the slots, then each metric's sums behind their number.
enum Place : size_t { kStop, kRows, kBadStep, kBadValue, kFirstSlot };

// Of all ranks, the first step with a loss that is no number.
std::optional<BadLoss> first_bad(const std::vector<std::vector<double>>& all) {
  std::optional<BadLoss> bad;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto step = static_cast<int64_t>(all[rank][kBadStep]);
    if (step >= 0 && (!bad || step < bad->step)) bad = BadLoss{step, static_cast<int>(rank), all[rank][kBadValue]};
  }
  return bad;
}

}  // namespace

void Meter::reset() {
  pending_.clear();
  rows_ = 0;
  bad_step_ = -1;
  losses_.assign(slots_, 0);
  sums_.assign(metrics_.size(), {});
}

void Meter::add(const Scored& scored, const torch::Tensor& label, int64_t step, int64_t slot) {
  const torch::NoGradGuard no_grad;
  if (scored.loss.defined())
    pending_.push_back(
        {step, static_cast<size_t>(slot), static_cast<double>(scored.output.size(0)), scored.loss.detach()});
  for (size_t i = 0; i < metrics_.size(); ++i) {
    const torch::Tensor added = metrics_[i]->measure(scored.output.detach(), label).to(torch::kDouble);
    sums_[i] = sums_[i].defined() ? sums_[i] + added : added;
  }
}

void Meter::note_bad(int64_t step, double value) {
  if (bad_step_ >= 0 || std::isfinite(value)) return;
  bad_step_ = static_cast<double>(step);
  bad_value_ = value;
}

void Meter::settle() {
  if (pending_.empty()) return;
  std::vector<torch::Tensor> losses;
  for (const Pending& one : pending_) losses.push_back(one.loss.reshape({}));
  const torch::Tensor values = torch::stack(losses).to(torch::kDouble).cpu();
  for (size_t i = 0; i < pending_.size(); ++i) {
    const double value = values[static_cast<int64_t>(i)].item<double>();
    losses_[pending_[i].slot] += value * pending_[i].rows;
    rows_ += pending_[i].rows;
    note_bad(pending_[i].step, value);
  }
  pending_.clear();
}

std::vector<double> Meter::packed(bool stop) const {
  std::vector<double> numbers = {stop ? 1.0 : 0.0, rows_, bad_step_, bad_value_};
  numbers.insert(numbers.end(), losses_.begin(), losses_.end());
  for (const torch::Tensor& sums : sums_) {
    const torch::Tensor here = sums.defined() ? sums.cpu().contiguous() : torch::empty({0}, torch::kDouble);
    numbers.push_back(static_cast<double>(here.numel()));
    numbers.insert(numbers.end(), here.const_data_ptr<double>(), here.const_data_ptr<double>() + here.numel());
  }
  return numbers;
}

Measured Meter::measured(const Team& team, bool stop) {
  settle();
  const std::vector<std::vector<double>> all = team.numbers_of_all(packed(stop));
  Measured measured{.bad = first_bad(all)};
  std::vector<double> losses(slots_, 0);
  double rows = 0;
  for (const std::vector<double>& one : all) {
    measured.stop |= one[kStop] != 0;
    rows += one[kRows];
    for (size_t slot = 0; slot < slots_; ++slot) losses[slot] += one[kFirstSlot + slot];
  }
  double loss = 0;
  for (const double one : losses) loss += one;
  if (rows > 0) measured.results.set("loss", loss / rows);
  name_metrics(all, measured.results);
  return measured;
}

// A rank without samples has no sums, and nothing to add.
void Meter::name_metrics(const std::vector<std::vector<double>>& all, Results& results) const {
  std::vector<size_t> at(all.size(), kFirstSlot + slots_);
  for (const Held<Metric>& metric : metrics_) {
    torch::Tensor sums;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const auto count = static_cast<int64_t>(all[rank][at[rank]]);
      const double* first = all[rank].data() + at[rank] + 1;
      at[rank] += static_cast<size_t>(count) + 1;
      if (count == 0) continue;
      const torch::Tensor one = torch::tensor(at::ArrayRef<double>(first, static_cast<size_t>(count)), torch::kDouble);
      sums = sums.defined() ? sums + one : one;
    }
    const std::vector<std::string> names = metric->names();
    const std::vector<double> values = sums.defined() ? metric->result(sums) : std::vector<double>(names.size(), 0);
    for (size_t i = 0; i < names.size(); ++i) results.set(names[i], values[i]);
  }
}

}  // namespace trireme
