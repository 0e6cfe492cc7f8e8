#include "trireme/train/trainer/make_metrics.h"

#include <fmt/core.h>

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

std::vector<RoleMetric> make_metrics(const std::vector<config::Metric>& metrics, const config::Node& section) {
  std::vector<RoleMetric> made;
  for (const config::Metric& metric : metrics) {
    config::check_choice(metric.params.path().empty() ? section : metric.params, metric.name,
                         {"TopkAcc", "DistillationTopkAcc"});
    made.push_back({metric.model_key, TopkAcc(metric.topk)});
  }
  return made;
}

}  // namespace trireme::trainer
