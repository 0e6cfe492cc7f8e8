// How good outputs are: measured batch by batch and on all ranks, reported as one number.
//
// A metric is a few sums: each batch adds its own, and the ranks' sums are added too. So results do not depend
// on how the samples were dealt out: counts are exact on any number of processes.
//
//   model.prepare({.optimizer = …, .loss = …, .metrics = {metric::Accuracy({1, 5}), metric::Auc()}});
//
// With several outputs or labels, say which of them a metric measures, counted from 0:
//
//   .metrics = {{metric::Accuracy({1}, "kind"), {.output = 0, .label = 0}},
//               {metric::Accuracy({1}, "size"), {.output = 1, .label = 1}}}
//
// One of your own:
//
//   struct MeanError : Metric {
//     std::vector<std::string> names() const override { return {"mae"}; }
//     torch::Tensor measure(const torch::Tensor& output, const torch::Tensor& label) const override {
//       return torch::stack({(output - label).abs().sum().to(torch::kDouble), torch::full({}, label.numel(),
//       torch::kDouble)});
//     }
//     std::vector<double> result(const torch::Tensor& sums) const override { return {ratio(sums, 0, 1)}; }
//   };
#pragma once

#include <torch/types.h>

#include <concepts>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/train/network.h"
#include "trireme/train/owned.h"

namespace trireme {

class Metric {
 public:
  virtual ~Metric() = default;

  /// What the values of result() are called.
  virtual std::vector<std::string> names() const = 0;
  /// What these samples add to the sums: one dimension, double, of the same length every time, on the outputs' device.
  virtual torch::Tensor measure(const torch::Tensor& output, const torch::Tensor& label) const = 0;
  /// The values, from sums on the CPU; as many as there are names.
  virtual std::vector<double> result(const torch::Tensor& sums) const = 0;

  /// The sums so far. For one thread at a time.
  void update(const torch::Tensor& output, const torch::Tensor& label);
  std::vector<double> compute() const;
  void reset() { sums_.reset(); }
  /// As they are now, on the CPU; an undefined tensor before the first update().
  torch::Tensor sums() const;

 protected:
  /// One sum divided by another, 0 when that is 0.
  static double ratio(const torch::Tensor& sums, int64_t part, int64_t whole);

 private:
  torch::Tensor sums_;
};

}  // namespace trireme

namespace trireme::train {

/// Which output of the network a metric measures, and by which label.
struct MetricInputs {
  size_t output = 0;
  size_t label = 0;
};

/// A metric, given by value or by pointer, and what it measures.
class MetricUse {
 public:
  template <typename M>
    requires std::constructible_from<Owned<Metric>, M>
  MetricUse(M metric) : metric_(std::move(metric)) {}  // NOLINT(google-explicit-constructor)
  template <typename M>
    requires std::constructible_from<Owned<Metric>, M>
  MetricUse(M metric, MetricInputs inputs) : metric_(std::move(metric)), inputs_(inputs) {}

  const Metric* operator->() const { return &*metric_; }
  /// What these samples add to the sums. UsageError when there are several outputs or labels and none was chosen, or
  /// when there is no such output or label.
  torch::Tensor measure(const Tensors& outputs, const Tensors& labels) const;

 private:
  Owned<Metric> metric_;
  std::optional<MetricInputs> inputs_;
};

using Metrics = std::vector<MetricUse>;

}  // namespace trireme::train

namespace trireme::metric {

/// The share of samples whose label is among the k highest outputs. Outputs: N x classes. Labels: N numbers of classes,
/// N x 1, or N x classes with a weight for each class (the heaviest counts). Named acc, or acc_top1, acc_top5, …
class Accuracy : public Metric {
 public:
  explicit Accuracy(std::vector<int64_t> topk = {1}, std::string name = "acc");

  std::vector<std::string> names() const override;
  torch::Tensor measure(const torch::Tensor& output, const torch::Tensor& label) const override;
  std::vector<double> result(const torch::Tensor& sums) const override;

 private:
  std::vector<int64_t> topk_;
  std::string name_;
};

/// A share of the samples: what measure() counts first, of what it counts second.
class Ratio : public Metric {
 public:
  explicit Ratio(std::string name) : name_(std::move(name)) {}
  std::vector<std::string> names() const override { return {name_}; }
  std::vector<double> result(const torch::Tensor& sums) const override { return {ratio(sums, 0, 1)}; }

 private:
  std::string name_;
};

/// Of the samples taken for positive, the share that is. Outputs: probabilities, positive from 0.5 on. Labels: 0 or 1.
class Precision : public Ratio {
 public:
  explicit Precision(std::string name = "precision") : Ratio(std::move(name)) {}
  torch::Tensor measure(const torch::Tensor& output, const torch::Tensor& label) const override;
};

/// Of the positive samples, the share that was taken for positive. As Precision.
class Recall : public Ratio {
 public:
  explicit Recall(std::string name = "recall") : Ratio(std::move(name)) {}
  torch::Tensor measure(const torch::Tensor& output, const torch::Tensor& label) const override;
};

/// The area under the ROC curve: how likely a positive sample is rated above a negative one. Outputs: N or N x 1
/// probabilities, or N x 2 of which the second is taken. Probabilities that fall into the same of the equal intervals
/// between the thresholds count as ties. 0 while one of the kinds is missing.
class Auc : public Metric {
 public:
  explicit Auc(int64_t thresholds = 4095, std::string name = "auc");

  std::vector<std::string> names() const override { return {name_}; }
  torch::Tensor measure(const torch::Tensor& output, const torch::Tensor& label) const override;
  std::vector<double> result(const torch::Tensor& sums) const override;

 private:
  int64_t thresholds_;
  std::string name_;
};

}  // namespace trireme::metric
