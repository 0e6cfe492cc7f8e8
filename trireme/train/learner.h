// One batch at a time: forward, loss, backward, step. Belongs to Model, which puts the loops around it.
#pragma once

#include <torch/optim/optimizer.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "trireme/io/module_state.h"
#include "trireme/optim/amp.h"
#include "trireme/optim/master_weights.h"
#include "trireme/train/meter.h"
#include "trireme/train/model.h"
#include "trireme/train/prepare_options.h"
#include "trireme/train/team.h"

namespace trireme {

struct TrainStep {
  double share = 1;    ///< of this batch in the step of the optimizer it belongs to
  bool update = true;  ///< it is the last one of that step
};

class Learner {
 public:
  explicit Learner(Network net);

  void prepare(const PrepareOptions& options);
  /// UsageError without an optimizer and a loss.
  void require_training(const char* who) const;

  /// These may be the first use: the ranks meet then, and the net moves to its device.
  Team& team();
  Scored train(const torch::Tensor& input, const torch::Tensor& label, const TrainStep& step = {});
  Scored evaluate(const torch::Tensor& input, const torch::Tensor& label);
  /// Outputs are float32 (or double), whatever the net computes in.
  torch::Tensor predict(const torch::Tensor& input);
  void forget_gradients();

  /// The weights and buffers by name, at full precision.
  io::TensorMap weights();
  /// What the optimizer works on: with O2, the float32 copies.
  io::TensorMap trained_parameters();
  void load_weights(const io::TensorMap& tensors, const io::LoadOptions& options);
  /// UsageError when there is none.
  torch::optim::Optimizer& optimizer();
  optim::GradScaler& scaler() { return *scaler_; }

  bool has_optimizer() const { return static_cast<bool>(options_.optimizer); }
  const Network& net() const { return net_; }
  const Metrics& metrics() const { return options_.metrics; }

 private:
  void get_ready();
  bool is_low() const { return options_.amp.level == AmpLevel::O2; }
  torch::Tensor forward(const torch::Tensor& input);
  torch::Tensor loss(const torch::Tensor& output, const torch::Tensor& label) const;
  void set_mode(bool training) const;
  void update();

  Network net_;
  PrepareOptions options_;
  std::optional<Team> team_;
  std::optional<optim::MasterWeights> masters_;  // with O2
  std::optional<optim::GradScaler> scaler_;
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
};

}  // namespace trireme
