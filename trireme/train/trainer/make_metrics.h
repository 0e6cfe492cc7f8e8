// Metric.Train and Metric.Eval -> what is measured, of which model.
//
//   std::vector<RoleMetric> metrics = make_metrics(config.metric.eval, config.document);   // top1, top5
#pragma once

#include <string>
#include <vector>

#include "trireme/config/loss_config.h"
#include "trireme/train/held.h"
#include "trireme/train/metrics.h"

namespace trireme::trainer {

struct RoleMetric {
  std::string role;  ///< empty: of the model that is evaluated
  Held<Metric> metric;
};

/// TopkAcc and DistillationTopkAcc. UsageError with file and line for others.
std::vector<RoleMetric> make_metrics(const std::vector<config::Metric>& metrics, const config::Node& section);

}  // namespace trireme::trainer
