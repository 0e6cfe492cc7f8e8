// The parts of a Model: net, ranks, Step, weights. Belongs to Model, which puts the loops around it.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <optional>

#include "trireme/io/module_state.h"
#include "trireme/train/meter.h"
#include "trireme/train/model.h"
#include "trireme/train/prepare_options.h"
#include "trireme/train/team.h"

namespace trireme {

/// What the net gave for a batch; without a gradient. The loss may be undefined.
struct Scored {
  torch::Tensor output;
  torch::Tensor loss;
};

class Learner {
 public:
  explicit Learner(Network net);

  void prepare(const PrepareOptions& options);
  /// UsageError without an optimizer and a loss.
  void require_training(const char* who) const;

  /// These may be the first use: the ranks meet then, and the net moves to its device.
  Team& team();
  /// UsageError when there is no optimizer.
  train::Step& step();
  Scored train(const torch::Tensor& input, const torch::Tensor& label, const train::BatchOptions& batch);
  Scored evaluate(const torch::Tensor& input, const torch::Tensor& label);
  /// Outputs are float32 (or double), whatever the net computes in.
  torch::Tensor predict(const torch::Tensor& input);
  /// While the result lives, the net has the averaged weights; null without an average.
  std::unique_ptr<optim::Ema::Applied> averaged_weights();

  /// What a batch adds to a Meter.
  Meter::Batch numbers(const Scored& scored, const torch::Tensor& label, int64_t step, int64_t slot = 0) const;

  /// The weights and buffers by name, at full precision.
  io::TensorMap weights();
  /// What the optimizer works on: with O2, the float32 copies.
  io::TensorMap trained_parameters();
  void load_weights(const io::TensorMap& tensors, const io::LoadOptions& options);

  bool has_optimizer() const { return static_cast<bool>(options_.optimizer); }
  const Network& net() const { return net_; }
  const Metrics& metrics() const { return options_.metrics; }

 private:
  bool is_low() const { return options_.amp.level == AmpLevel::O2; }
  void make_step();

  Network net_;
  PrepareOptions options_;
  std::optional<Team> team_;
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  std::optional<train::Step> step_;
};

}  // namespace trireme
