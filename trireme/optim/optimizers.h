// SGD, Momentum, Adam and AdamW with one kernel call over all parameters that share a device and a type, on the CPU and
// on GPUs; and Paddle's RMSProp. They *are* torch::optim's classes with another step(): options, states, torch::save()
// and torch::load(), and code written for torch::optim::Optimizer stay as they are. After 50 steps results agree with
// torch's to 1e-6; only AdamW in float on a GPU parts by some 3e-6, because it rounds less often than torch's.
//
//   optim::Momentum optimizer(model->parameters(), {.lr = 0.1, .weight_decay = 1e-4});
//   optimizer.zero_grad();  loss.backward();  optimizer.step();
//   optim::AdamW other(decay_groups(*model, {.norm = true}), {.lr = 1e-3});          // see param_groups.h
//
// `weight_decay` is added to the gradient (L2), except in AdamW, where it is taken off the weight itself (decoupled). A
// parameter without gradient is left alone, its state too. Gradients may lie in memory in another order than their
// parameter. Invalid options and sparse gradients are a UsageError.
// Thread rule: one thread at a time, as for torch::optim.
#pragma once

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <vector>

#include "trireme/optim/param_groups.h"

namespace trireme::optim {

/// Clears the gradients of any torch optimizer. Those that are views, as into a bucket that ranks exchange, are set to
/// zero where they lie; torch's own zero_grad() throws for them. The others are dropped, or zeroed if
/// set_to_none is false.
void zero_grad(torch::optim::Optimizer& optimizer, bool set_to_none = true);
void zero_grad(const std::vector<torch::Tensor>& parameters, bool set_to_none = true);

/// The rate of all parameter groups, each times its ParamGroup::lr_factor.
void set_lr(torch::optim::Optimizer& optimizer, double lr);
/// What set_lr() has set.
double get_lr(const torch::optim::Optimizer& optimizer);

/// All parameters of all groups, in their order.
std::vector<torch::Tensor> parameters_of(const torch::optim::Optimizer& optimizer);

struct SgdOptions {
  double lr = 0.001;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

/// v = momentum * v + (1 - dampening) * g;  p -= lr * v, with g = gradient + weight_decay * p. The first v is g.
class SGD : public torch::optim::SGD {
 public:
  using torch::optim::SGD::SGD;
  SGD(std::vector<torch::Tensor> params, const SgdOptions& options);
  SGD(const std::vector<ParamGroup>& groups, const SgdOptions& options);
  torch::Tensor step(LossClosure closure = nullptr) override;
  void zero_grad(bool set_to_none = true) { optim::zero_grad(*this, set_to_none); }
};

struct MomentumOptions {
  double lr = 0.001;
  double momentum = 0.9;
  double weight_decay = 0;
  bool use_nesterov = false;
};

/// Paddle's Momentum: v = momentum * v + g;  p -= lr * v, or lr * (g + momentum * v) with use_nesterov.
class Momentum : public SGD {
 public:
  Momentum(std::vector<torch::Tensor> params, const MomentumOptions& options);
  Momentum(const std::vector<ParamGroup>& groups, const MomentumOptions& options);
};

struct AdamOptions {
  double lr = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
};

class Adam : public torch::optim::Adam {
 public:
  using torch::optim::Adam::Adam;
  Adam(std::vector<torch::Tensor> params, const AdamOptions& options);
  Adam(const std::vector<ParamGroup>& groups, const AdamOptions& options);
  torch::Tensor step(LossClosure closure = nullptr) override;
  void zero_grad(bool set_to_none = true) { optim::zero_grad(*this, set_to_none); }
};

struct AdamWOptions {
  double lr = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  bool amsgrad = false;
};

class AdamW : public torch::optim::AdamW {
 public:
  using torch::optim::AdamW::AdamW;
  AdamW(std::vector<torch::Tensor> params, const AdamWOptions& options);
  AdamW(const std::vector<ParamGroup>& groups, const AdamWOptions& options);
  torch::Tensor step(LossClosure closure = nullptr) override;
  void zero_grad(bool set_to_none = true) { optim::zero_grad(*this, set_to_none); }
};

struct RmsPropOptions {
  double lr = 0.001;
  double rho = 0.95;
  double epsilon = 1e-6;
  double momentum = 0;
  bool centered = false;
  double weight_decay = 0;
};

/// s = rho * s + (1 - rho) * g^2;  m = momentum * m + lr * g / sqrt(s + epsilon);  p -= m, with g = gradient +
/// weight_decay * p; when `centered`, a = rho * a + (1 - rho) * g and sqrt(s - a^2 + epsilon). torch's own adds epsilon
/// to the root and multiplies by the rate after the momentum: they agree with a constant rate and an epsilon of 0.
class RMSProp : public torch::optim::RMSprop {
 public:
  RMSProp(std::vector<torch::Tensor> params, const RmsPropOptions& options);
  RMSProp(const std::vector<ParamGroup>& groups, const RmsPropOptions& options);
  torch::Tensor step(LossClosure closure = nullptr) override;
  void zero_grad(bool set_to_none = true) { optim::zero_grad(*this, set_to_none); }
};

}  // namespace trireme::optim
