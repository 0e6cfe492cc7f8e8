#include "trireme/train/metrics.h"

#include <fmt/ranges.h>
#include <torch/torch.h>

#include <algorithm>

#include "trireme/core/error.h"

namespace trireme {

void Metric::update(const torch::Tensor& output, const torch::Tensor& label) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor added = measure(output, label).to(torch::kDouble);
  sums_ = sums_.defined() ? sums_ + added : added;
}

torch::Tensor Metric::sums() const {
  return sums_.defined() ? sums_.cpu() : sums_;
}

std::vector<double> Metric::compute() const {
  return sums_.defined() ? result(sums()) : std::vector<double>(names().size(), 0);
}

double Metric::ratio(const torch::Tensor& sums, int64_t part, int64_t whole) {
  const double below = sums[whole].item<double>();
  return below == 0 ? 0 : sums[part].item<double>() / below;
}

}  // namespace trireme

namespace trireme::train {
namespace {

const torch::Tensor& chosen(const Metric& metric, const char* what, const Tensors& from, size_t number) {
  if (number >= from.size())
    throw UsageError("metric '{}': .{} = {}, and there are {} {}s, counted from 0", metric.names()[0], what, number,
                     from.size(), what);
  return from[number];
}

}  // namespace

torch::Tensor MetricUse::measure(const Tensors& outputs, const Tensors& labels) const {
  if (!inputs_ && (outputs.size() != 1 || labels.size() != 1))
    throw UsageError(
        "metric '{}': there are {} outputs and {} labels; say which of them it measures: {{metric, {{.output = 0, "
        ".label = 0}}}}",
        metric_->names()[0], outputs.size(), labels.size());
  const MetricInputs inputs = inputs_.value_or(MetricInputs{});
  const torch::NoGradGuard no_grad;
  return metric_->measure(chosen(*metric_, "output", outputs, inputs.output).detach(),
                          chosen(*metric_, "label", labels, inputs.label));
}

}  // namespace trireme::train

namespace trireme::metric {
namespace {

std::string shape(const torch::Tensor& tensor) {
  return fmt::format("{}", fmt::join(tensor.sizes(), " x "));
}

// The number of the class of each sample, from any of the three forms.
torch::Tensor class_numbers(const torch::Tensor& label, const torch::Tensor& output) {
  torch::Tensor numbers = label;
  if (label.dim() == 2) numbers = label.size(1) == 1 ? label.squeeze(1) : label.argmax(1);
  if (output.dim() != 2 || numbers.dim() != 1 || numbers.size(0) != output.size(0))
    throw UsageError(
        "metric::Accuracy: outputs are {} and labels {}; it takes N x classes, and N, N x 1 or N x classes",
        shape(output), shape(label));
  return numbers;
}

// One value for each sample.
torch::Tensor flat(const torch::Tensor& tensor) {
  return tensor.reshape({-1});
}

void require_equal_counts(const char* who, const torch::Tensor& output, const torch::Tensor& label) {
  if (output.numel() != label.numel())
    throw UsageError("metric::{}: {} outputs for {} labels; it takes one probability for each sample", who,
                     output.numel(), label.numel());
}

struct Binary {
  torch::Tensor taken;  // for positive
  torch::Tensor positive;
};

Binary binary(const char* who, const torch::Tensor& output, const torch::Tensor& label) {
  require_equal_counts(who, output, label);
  return {flat(output) >= 0.5, flat(label) == 1};
}

torch::Tensor counts(const torch::Tensor& part, const torch::Tensor& whole) {
  return torch::stack({part.sum(), whole.sum()}).to(torch::kDouble);
}

}  // namespace

Accuracy::Accuracy(std::vector<int64_t> topk, std::string name) : topk_(std::move(topk)), name_(std::move(name)) {
  if (topk_.empty() || *std::min_element(topk_.begin(), topk_.end()) < 1)
    throw UsageError("metric::Accuracy: topk is {{{}}}; it needs one or more numbers of at least 1",
                     fmt::join(topk_, ", "));
}

std::vector<std::string> Accuracy::names() const {
  if (topk_ == std::vector<int64_t>{1}) return {name_};
  std::vector<std::string> names;
  for (const int64_t k : topk_) names.push_back(fmt::format("{}_top{}", name_, k));
  return names;
}

torch::Tensor Accuracy::measure(const torch::Tensor& output, const torch::Tensor& label) const {
  const torch::Tensor numbers = class_numbers(label, output).to(output.device());
  const int64_t most = std::min(*std::max_element(topk_.begin(), topk_.end()), output.size(1));
  const torch::Tensor hits = std::get<1>(output.topk(most, 1)).eq(numbers.unsqueeze(1));
  std::vector<torch::Tensor> sums;
  for (const int64_t k : topk_) sums.push_back(hits.narrow(1, 0, std::min(k, most)).sum());
  sums.push_back(torch::full_like(sums[0], output.size(0)));
  return torch::stack(sums).to(torch::kDouble);
}

std::vector<double> Accuracy::result(const torch::Tensor& sums) const {
  std::vector<double> values;
  for (size_t i = 0; i < topk_.size(); ++i)
    values.push_back(ratio(sums, static_cast<int64_t>(i), static_cast<int64_t>(topk_.size())));
  return values;
}

torch::Tensor Precision::measure(const torch::Tensor& output, const torch::Tensor& label) const {
  const Binary sample = binary("Precision", output, label);
  return counts(sample.taken & sample.positive, sample.taken);
}

torch::Tensor Recall::measure(const torch::Tensor& output, const torch::Tensor& label) const {
  const Binary sample = binary("Recall", output, label);
  return counts(sample.taken & sample.positive, sample.positive);
}

Auc::Auc(int64_t thresholds, std::string name) : thresholds_(thresholds), name_(std::move(name)) {
  if (thresholds_ < 1) throw UsageError("metric::Auc: {} thresholds; there must be at least 1", thresholds_);
}

// A histogram of the negative samples' probabilities, then one of the positive samples'.
torch::Tensor Auc::measure(const torch::Tensor& output, const torch::Tensor& label) const {
  const bool two_columns = output.dim() == 2 && output.size(1) == 2;
  const torch::Tensor probability = flat(two_columns ? output.select(1, 1) : output).to(torch::kDouble);
  require_equal_counts("Auc", probability, label);
  const int64_t bins = thresholds_ + 1;
  const torch::Tensor bin = (probability * thresholds_).clamp(0, thresholds_).to(torch::kLong);
  const torch::Tensor place = bin + (flat(label) == 1).to(torch::kLong) * bins;
  return torch::zeros({2 * bins}, probability.options()).index_add_(0, place, torch::ones_like(probability));
}

// Each positive sample beats the negative ones of lower bins, and half of those of its own.
std::vector<double> Auc::result(const torch::Tensor& sums) const {
  const torch::Tensor negative = sums.narrow(0, 0, thresholds_ + 1);
  const torch::Tensor positive = sums.narrow(0, thresholds_ + 1, thresholds_ + 1);
  const double pairs = (negative.sum() * positive.sum()).item<double>();
  if (pairs == 0) return {0};
  const torch::Tensor beaten = negative.cumsum(0) - negative / 2;
  return {(positive * beaten).sum().item<double>() / pairs};
}

}  // namespace trireme::metric
