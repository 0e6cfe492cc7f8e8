// Metric.Train and Metric.Eval -> what is measured, of which model.
//
//   RoleMetrics metrics = make_metrics(config.metric.eval, config.document);     // top1, top5
//   meter.add({.losses = …, .sums = metrics.measure(outputs, labels), …});
#pragma once

#include <string>
#include <vector>

#include "trireme/config/loss_config.h"
#include "trireme/train/meter.h"
#include "trireme/train/trainer/make_loss.h"

namespace trireme::trainer {

struct RoleMetrics {
  train::Metrics all;
  std::vector<std::string> roles;  ///< of each; empty: the model that is evaluated

  /// What each adds for the labelled samples; nothing when there are none.
  std::vector<torch::Tensor> measure(const Outputs& outputs, const Labels& labels) const;
};

/// TopkAcc and DistillationTopkAcc. UsageError with file and line for others.
RoleMetrics make_metrics(const std::vector<config::Metric>& metrics, const config::Node& section);

}  // namespace trireme::trainer
