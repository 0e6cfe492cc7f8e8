// One step of training: forward, loss, scaled backward, accumulation, clipping, optimizer, average of the weights.
// Model, `trireme train` and loops of your own all train by it, so the same net, data and seed give the same bits.
//
//   DataParallel model(Net(), world);
//   optim::AdamW adam(model->parameters(), {.lr = 1e-3});
//   train::Step step(model, adam, {.loss = torch::nn::CrossEntropyLoss(), .clip_norm = 1.0, .accumulate = 4});
//   for (auto& [x, y] : train) torch::Tensor loss = step(x, y);
//
// With several inputs, labels and outputs (network.h, loss.h):
//
//   torch::Tensor loss = step({left, right}, {kind, distance});
//
// For anything else, a function that gives the loss:
//
//   step([&] { return contrastive(model(left), model(right)); }, {.samples = left.size(0)});
//
// Accumulation. `accumulate` batches in a row form a group, and the optimizer steps at the end of each group. Batches
// of a group weigh by their samples: four batches of 8, 8, 8 and 3 give the gradients of one batch of 27 with a mean
// loss. Only the last backward of a group averages over the ranks. A group ends early with `.update = true`; without
// that an incomplete group goes on with the next batch, also over the end of an epoch. A group starts without
// gradients: what another backward has left in the parameters (a GAN's generator in its discriminator) is dropped.
//
// Precision. O1 runs the forward pass under autocast. O2 also keeps the weights in low precision: call
// optim::lower_precision(*net, dtype) before DataParallel and before the optimizer is made; Step then makes the
// optimizer work on float32 copies. ShardedDataParallel with a param_dtype has both already. With fp16 the loss is
// scaled, and all ranks skip a step when gradients overflowed on any of them.
//
// Graph. With `graph` a step(x, y) on a GPU repeats what an earlier one launched, as a CUDA graph: for networks of many
// small operators that is faster. The first four steps of a shape run as usual; batches of another shape always do. So
// do all steps where a graph is not possible: a model that is not on a GPU, several ranks, a group of several batches,
// step([&] { … }). One line of the log states each reason. Requires that forward() and the loss compute the same for
// every batch of one shape, from the batch, parameters, buffers and tensors that stay where they are: what they decide on
// the host, from a counter or from random numbers of their own, stays as it was recorded, and a tensor that a member of
// the network is set to later is not seen. (A forward() that calls other operators or numbers from one of the first steps
// to the next is noticed and not recorded; random numbers of libtorch are right.) Learning rates, clipping, loss scale
// and averages may change as ever.
//
// Memory order. With `channels_last` the weights of a network that takes images are laid out channels last when the
// Step is made, and so are the images of step(x, y): convolutions are faster, and layers are fused. A network whose
// forward() cannot work so (view() refuses it) is put back in its first step. TRIREME_CHANNELS_LAST=0 switches it off,
// on all ranks alike. A ShardedDataParallel is left as it is: lay its module out before it is wrapped
// (nn/channels_last.h). So is step([&] { … }), which gets its images from the program.
//
// Requires: the module is on its device; the optimizer has only parameters of this module, and outlives the Step. Every
// rank makes the same calls. Thread rule: one thread at a time.
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trireme/io/checkpoint/training_state.h"
#include "trireme/optim/amp.h"
#include "trireme/optim/ema.h"
#include "trireme/optim/master_weights.h"
#include "trireme/train/amp_options.h"
#include "trireme/train/loss.h"
#include "trireme/train/step_model.h"
#include "trireme/watch/recorder.h"

namespace trireme::train {

struct StepOptions {
  Loss loss = {};                            ///< of step(x, y); step([&] { … }) needs none
  AmpOptions amp = {};                       ///< mixed precision
  std::optional<double> clip_norm = {};      ///< the largest norm of all gradients together
  int64_t accumulate = 1;                    ///< batches of one optimizer step
  std::optional<double> ema_decay = {};      ///< keep an average of the weights: see ema()
  bool graph = false;                        ///< on a GPU: steps of one shape as a CUDA graph
  bool channels_last = true;                 ///< weights and images of step(x, y)
  std::function<void()> before_update = {};  ///< called with the final gradients, just before the optimizer's step
};

struct BatchOptions {
  std::optional<int64_t> samples = {};  ///< the weight in its group; by default the rows of x, or 1 for a function
  std::optional<bool> update = {};      ///< true ends the group with this batch, false does not; default: `accumulate`
};

/// What a call did to the weights.
enum class Update {
  none,     ///< gradients were added; the group goes on
  done,     ///< the optimizer has stepped
  skipped,  ///< gradients of some rank were not finite: no step, and a smaller loss scale (fp16 only)
};

class StepGraph;

class Step {
 public:
  /// UsageError for options out of range, for parameters that are not of this module, and with O2 for weights that are
  /// not in low precision.
  Step(StepModel model, torch::optim::Optimizer& optimizer, StepOptions options = {});
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  /// One batch. Returns its mean loss, without a gradient. The module is put into training mode if it is not.
  /// UsageError without `options.loss`, for numbers of tensors that network or loss do not take, and for a loss of more
  /// than one element.
  torch::Tensor operator()(const torch::Tensor& input, const torch::Tensor& label, const BatchOptions& batch = {});
  torch::Tensor operator()(const Tensors& inputs, const Tensors& labels, const BatchOptions& batch = {});
  /// The same with a function that runs the forward pass (under autocast with O1 and O2) and returns the mean loss.
  template <std::invocable F>
  torch::Tensor operator()(F&& loss, const BatchOptions& batch = {}) {
    return run_autocast(std::forward<F>(loss), batch);
  }

  /// The outputs of the last step(x, y), without a gradient: for metrics. output() is the first of them.
  const Tensors& outputs() const { return outputs_; }
  const torch::Tensor& output() const { return outputs_.at(0); }
  /// What the last call did.
  Update update() const { return update_; }
  /// Batches of the group that is not complete. Checkpoints are saved when it is 0.
  int64_t pending() const { return pending_; }
  /// The batches of a group from the next group on.
  void set_accumulate(int64_t batches);
  /// Drops the gradients of an incomplete group.
  void drop_gradients();

  /// For Checkpoint: model, optimizer, average, float32 copies and loss scale; add the loader. Saving is a UsageError
  /// while pending() is not 0. References into this object.
  TrainingState state();

  torch::optim::Optimizer& optimizer() { return optimizer_; }
  optim::GradScaler& scaler() { return scaler_; }
  optim::Ema* ema();                ///< null without ema_decay
  optim::MasterWeights* masters();  ///< null without O2
  const StepModel& model() const { return model_; }
  const StepOptions& options() const { return options_; }

 private:
  using LossFunction = std::function<torch::Tensor()>;

  torch::Tensor loss_of(const Tensors& inputs, const Tensors& labels);
  torch::Tensor run_graph(const Tensors& inputs, const Tensors& labels, int64_t samples);
  torch::Tensor run_autocast(const LossFunction& loss, const BatchOptions& batch);
  torch::Tensor run(const LossFunction& loss, int64_t samples, std::optional<bool> update);
  double weight_of(int64_t samples, bool last);
  Update apply_gradients();
  void compare_options();
  torch::Tensor forward(const LossFunction& loss);
  void begin_group();
  void follow_weights();
  void make_graph();
  void say_no_graph(const std::string& reason);

  StepModel model_;
  torch::optim::Optimizer& optimizer_;
  StepOptions options_;
  std::vector<torch::Tensor> parameters_;  // of the module
  std::vector<int64_t> dropped_;           // the versions of their gradients since drop_gradients()
  torch::Device device_;
  std::optional<optim::MasterWeights> masters_;
  optim::GradScaler scaler_;
  std::optional<optim::Ema> ema_;
  std::unique_ptr<StepGraph> graph_;     // null: none
  std::set<std::string> without_graph_;  // the reasons that the log has
  Tensors outputs_;
  Update update_ = Update::none;
  uint64_t updates_ = 0;
  int64_t pending_ = 0;           // batches of the group so far
  int64_t samples_ = 0;           // of those
  int64_t expected_samples_ = 0;  // of the whole group, if all batches are as large as the first
  watch::StepCounter steps_{watch::StepCounter::Source::steps};
};

}  // namespace trireme::train
