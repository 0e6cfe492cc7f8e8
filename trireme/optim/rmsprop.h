// Paddle's RMSProp, with the options and the state of torch::optim::RMSprop, so that whatever knows torch's
// (checkpoints, schedules, GradScaler) knows it too.
//
//   optim::RMSProp optimizer(model->parameters(), {.lr = 0.01, .rho = 0.9, .momentum = 0.9});
//   optimizer.zero_grad();  loss.backward();  optimizer.step();
//
// With g = gradient + weight_decay * p:
//   s = rho * s + (1 - rho) * g^2;  m = momentum * m + lr * g / sqrt(s + epsilon);  p -= m
// and, when `centered`, a = rho * a + (1 - rho) * g and sqrt(s - a^2 + epsilon). torch's own adds epsilon to the root
// and multiplies by the rate after the momentum: they agree with a constant rate and an epsilon of 0.
// A parameter without gradient is left alone. Thread rule: one thread at a time.
#pragma once

#include <torch/optim/rmsprop.h>

#include <vector>

#include "trireme/optim/param_groups.h"

namespace trireme::optim {

struct RmsPropOptions {
  double lr = 0.001;
  double rho = 0.95;
  double epsilon = 1e-6;
  double momentum = 0;
  bool centered = false;
  double weight_decay = 0;
};

class RMSProp : public torch::optim::RMSprop {
 public:
  /// UsageError for options that cannot be.
  RMSProp(std::vector<torch::Tensor> params, const RmsPropOptions& options);
  RMSProp(const std::vector<ParamGroup>& groups, const RmsPropOptions& options);
  torch::Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace trireme::optim
