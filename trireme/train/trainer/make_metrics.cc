#include "trireme/train/trainer/make_metrics.h"

#include <fmt/core.h>
#include <torch/torch.h>

#include "trireme/config/check.h"

namespace trireme::trainer {
namespace {

/// Accuracy under PaddleClas' names.
class TopkAcc : public metric::Accuracy {
 public:
  explicit TopkAcc(const std::vector<int64_t>& topk) : Accuracy(topk), topk_(topk) {}
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const int64_t k : topk_) names.push_back(fmt::format("top{}", k));
    return names;
  }

 private:
  std::vector<int64_t> topk_;
};

}  // namespace

std::vector<torch::Tensor> RoleMetrics::measure(const Outputs& outputs, const Labels& labels) const {
  if (labels.labelled == 0) return {};
  const torch::NoGradGuard no_grad;
  const Outputs labelled = outputs.first(labels.labelled);
  std::vector<torch::Tensor> sums;
  for (size_t i = 0; i < all.size(); ++i) {
    const torch::Tensor& scores = roles[i].empty() ? labelled.main() : labelled.of(roles[i]);
    sums.push_back(all[i]->measure(scores.detach(), labels.target));
  }
  return sums;
}

RoleMetrics make_metrics(const std::vector<config::Metric>& metrics, const config::Node& section) {
  RoleMetrics made;
  for (const config::Metric& metric : metrics) {
    config::check_choice(metric.params.path().empty() ? section : metric.params, metric.name,
                         {"TopkAcc", "DistillationTopkAcc"});
    made.all.emplace_back(TopkAcc(metric.topk));
    made.roles.push_back(metric.model_key);
  }
  return made;
}

}  // namespace trireme::trainer
