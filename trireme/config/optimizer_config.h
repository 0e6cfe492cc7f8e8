// The section Optimizer with its learning rate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/config/node.h"

namespace trireme::config {

struct LearningRate {
  /// Constant, Linear, Poly, Cosine, Step, Piecewise or MultiStepDecay.
  std::string name = "Constant";
  double learning_rate = 0.001;  ///< of Piecewise: values[0] when it is not given or 0
  double warmup_epoch = 0;
  double warmup_start_lr = 0;
  double eta_min = 0;  ///< Cosine
  /// Piecewise: ascending epochs, and one value more. Both are empty when the file has a learning_rate: it then falls to
  /// a tenth every 30 epochs, as in PaddleClas.
  std::vector<int64_t> decay_epochs;
  std::vector<double> values;
  double step_size = 30;            ///< Step, epochs
  double gamma = 0.1;               ///< Step, MultiStepDecay
  std::vector<int64_t> milestones;  ///< MultiStepDecay, epochs, ascending
  double end_lr = 0;                ///< Linear, Poly
  double power = 1;                 ///< Linear, Poly
  bool by_epoch = false;            ///< changes once an epoch instead of once a step
  bool auto_scale = false;          ///< Trireme's own: scale with the global batch
  Node node;
};

enum class RegularizerKind { none, l1, l2 };

struct Regularizer {
  RegularizerKind kind = RegularizerKind::none;
  double coeff = 0;
};

struct Optimizer {
  std::string name = "Momentum";  ///< SGD, Momentum, Adam, AdamW, RMSProp or Lamb
  double momentum = 0.9;          ///< PaddleClas: must be given
  bool use_nesterov = false;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double rho = 0.95;
  double weight_decay = 0;  ///< decoupled for AdamW and Lamb, L2 for the others; 0 when there is a regularizer
  Regularizer regularizer;
  std::optional<double> clip_norm;                ///< of all gradients together
  std::vector<std::string> no_weight_decay_name;  ///< parts of parameter names
  bool one_dim_param_no_weight_decay = false;
  LearningRate lr;
  Node node;
};

Optimizer read_optimizer(const Node& section);

}  // namespace trireme::config
