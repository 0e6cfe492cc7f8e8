// The parts of a Model: net, ranks, Step, weights. Belongs to Model, which puts the loops around it.
#pragma once

#include <torch/optim/optimizer.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "trireme/data/sample.h"
#include "trireme/io/module_state.h"
#include "trireme/train/meter.h"
#include "trireme/train/network.h"
#include "trireme/train/prepare_options.h"
#include "trireme/train/ranks.h"
#include "trireme/train/step.h"
#include "trireme/train/tensor_names.h"

namespace trireme::train {

/// The tensors of a batch by their use.
struct ModelBatch {
  Tensors inputs;
  Tensors labels;
};

/// What the net gave for a batch; without a gradient. The loss may be undefined.
struct Scored {
  Tensors outputs;
  torch::Tensor loss;
};

/// What the net computes with in an evaluation, for as long as this lives: averages where there are any, and whole where it
/// is split over the ranks, so that a rank may compute alone. Made and ended by all ranks at the same places.
struct EvaluationWeights {
  std::unique_ptr<optim::Ema::Applied> averaged;
  std::unique_ptr<GatheredParameters> whole;
};

class Learner {
 public:
  Learner(Network net, TensorNames names);

  void prepare(const PrepareOptions& options);
  /// UsageError without an optimizer and a loss.
  void require_training(const char* who) const;

  /// These may be the first use: the ranks meet then, and the net moves to its device.
  Ranks& ranks();
  /// UsageError when there is no optimizer.
  Step& step();
  /// UsageError with the names when the samples do not have the tensors that network and loss take.
  ModelBatch split(const data::Batch& batch) const;
  Tensors inputs_of(const data::Batch& batch) const;
  Scored train(const ModelBatch& batch, const BatchOptions& options);
  Scored evaluate(const ModelBatch& batch);
  /// Outputs are float32 (or double), whatever the net computes in.
  Tensors predict(const Tensors& inputs);
  /// While the result lives, the net has the averaged weights; null without an average.
  std::unique_ptr<optim::Ema::Applied> averaged_weights();
  EvaluationWeights evaluation_weights();

  /// What a batch adds to a Meter.
  Meter::Batch numbers(const Scored& scored, const ModelBatch& batch, int64_t step, int64_t slot = 0) const;

  /// What lies on several ranks, brought together as it is made. Called by every rank.
  trireme::detail::WholeState whole_state();
  /// The weights and buffers by name, whole and at full precision.
  trireme::detail::WholeTensors weights(const trireme::detail::WholeState& whole) const;
  /// What the optimizer works on: with O2, the float32 copies; with `shard`, this rank's pieces.
  io::TensorMap trained_parameters();
  /// Whole tensors. Called by every rank; when one throws, all throw.
  void load_weights(const io::TensorMap& tensors, const io::LoadOptions& options);
  /// This file was not read, since there is no optimizer yet; the next prepare() says so.
  void note_unread_optimizer(const std::filesystem::path& file) { unread_optimizer_ = file; }

  bool has_optimizer() const { return static_cast<bool>(options_.optimizer); }
  const Network& net() const { return net_; }
  const Metrics& metrics() const { return options_.metrics; }

 private:
  std::vector<std::string> input_names(const data::Batch& batch) const;
  bool is_low() const { return options_.amp.level == AmpLevel::O2; }
  TrainingState state();
  void make_step();
  void end_sharding();
  void lay_out();
  StepModel step_model();

  Network net_;
  TensorNames names_;
  PrepareOptions options_;
  Forward forward_;  // the net's, as its weights are laid out; empty: not yet
  std::optional<Ranks> ranks_;
  std::shared_ptr<torch::optim::Optimizer> optimizer_;
  std::optional<Step> step_;
  std::filesystem::path unread_optimizer_;
};

}  // namespace trireme::train
