// The sections Loss and Metric: for training and for evaluation a list each.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trireme/config/arch_config.h"
#include "trireme/config/node.h"

namespace trireme::config {

struct Loss {
  std::string name;  ///< CELoss, DistillationDMLLoss, …
  double weight = 1;
  /// Of a distillation loss: which models it compares, and which it is taken of.
  std::vector<std::pair<std::string, std::string>> model_name_pairs;
  std::vector<std::string> model_names;
  Node params;  ///< all keys, such as epsilon
};

struct Metric {
  std::string name;  ///< TopkAcc, DistillationTopkAcc, …
  std::vector<int64_t> topk{1, 5};
  std::string model_key;  ///< of a distillation metric: the model that is measured
  Node params;
};

template <typename T>
struct TrainAndEval {
  std::vector<T> train;
  std::vector<T> eval;
};

/// `arch` tells which models there are for a distillation's losses and metrics to name.
TrainAndEval<Loss> read_losses(const Node& section, const Arch& arch);
TrainAndEval<Metric> read_metrics(const Node& section, const Arch& arch);

}  // namespace trireme::config
