// Layers one after the other on different ranks: pipeline parallelism.
//
//   Mesh mesh(world, {{"pipe", 4}, {"data", -1}});
//   std::vector<PipelineLayer> layers{{"conv", [] { return Conv(); }}, …, {"head", [] { return Head(); }}};
//   Pipeline pipe(layers, mesh["pipe"], {.micro_batches = 8, .loss = cross_entropy, .data = mesh["data"]});
//   torch::optim::Adam adam(pipe.parameters(), 1e-3);           // those of this rank's layers
//   for (auto& [x, y] : train) {
//     torch::Tensor loss = pipe.train_batch(x, y, adam);        // the same number on every rank
//   }
//
// The batch is cut into micro-batches along the first dimension, which go through the ranks one behind the other
// (schedule_kind.h). What is trained is what one process trains on the whole batch, when the loss is a mean over its rows and
// no layer looks at several rows at once, as batch normalisation does: such layers see a micro-batch. A seed
// (torch::manual_seed, or seed_along(mesh["data"], seed)) gives the same dropout on any number of ranks.
//
// Requires: every rank calls the same functions at the same places. The inputs are used by the first rank and the targets
// by the last; the others may give them or not. Those that several ranks give are compared in calls 1, 2, 4, 8 and so on;
// other values are a UsageError on every rank. When a rank fails, the call throws on the others (see Group).
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/core/cxx20.h"
#include "trireme/core/error.h"
#include "trireme/optim/amp.h"
#include "trireme/parallel/gradient_exchange.h"
#include "trireme/parallel/gradient_sync.h"
#include "trireme/parallel/pipeline/layer.h"
#include "trireme/parallel/pipeline/schedule_kind.h"
#include "trireme/parallel/sharded/shard_sync.h"

namespace trireme {

/// One tensor or several.
class BatchTensors {
 public:
  BatchTensors() = default;             ///< none: on ranks that do not need them
  BatchTensors(torch::Tensor tensor) {  // NOLINT(google-explicit-constructor): one is a list too
    if (tensor.defined()) tensors_.push_back(std::move(tensor));
  }
  BatchTensors(std::vector<torch::Tensor> tensors) : tensors_(std::move(tensors)) {}  // NOLINT
  BatchTensors(std::initializer_list<torch::Tensor> tensors) : tensors_(tensors) {}   // NOLINT
  const std::vector<torch::Tensor>& list() const { return tensors_; }

 private:
  std::vector<torch::Tensor> tensors_;
};

/// The mean over the rows of a micro-batch: f(output, target), or f(outputs, targets) with two std::vectors.
class PipelineLoss {
 public:
  PipelineLoss() = default;
  template <typename F>
    requires(!std::same_as<std::remove_cvref_t<F>, PipelineLoss>)
  PipelineLoss(F f) {  // NOLINT(google-explicit-constructor): a function is one
    if constexpr (std::invocable<F&, torch::Tensor, torch::Tensor>)
      f_ = [f = std::move(f)](const List& outputs, const List& targets) mutable -> torch::Tensor {
        if (outputs.size() != 1 || targets.size() != 1)
          throw UsageError(
              "the loss takes one output and one target, but there are {} and {}; let it take two std::vectors",
              outputs.size(), targets.size());
        return f(outputs[0], targets[0]);
      };
    else
      f_ = std::move(f);
  }
  explicit operator bool() const { return static_cast<bool>(f_); }
  torch::Tensor operator()(const std::vector<torch::Tensor>& outputs, const std::vector<torch::Tensor>& targets) const {
    return f_(outputs, targets);
  }

 private:
  using List = std::vector<torch::Tensor>;
  std::function<torch::Tensor(const List&, const List&)> f_;
};

/// What is made equal among the stages.
enum class Cut {
  count,       ///< the number of layers
  parameters,  ///< the number of their parameters
  /// The time of forward and backward, which the first rank measures on `sample`. A UsageError with layers that are split
  /// over several ranks: each line of their axis would measure by its own clock.
  time,
};

struct PipelineOptions {
  int micro_batches = 1;
  Schedule schedule = Schedule::one_f_one_b;
  int chunks = 1;  ///< stages of each rank, with Schedule::interleaved
  PipelineLoss loss = {};
  Cut cut = Cut::count;
  std::vector<std::string> begins = {};      ///< instead: the names of the first layers of all stages
  BatchTensors sample = {};                  ///< for Cut::time: a micro-batch
  uint64_t seed = 0;                         ///< of the weights: the same on any number of ranks
  std::optional<torch::Device> device = {};  ///< where this rank computes; empty: the world's device
  Group data = {};                           ///< mesh["data"]: pipelines whose gradients are averaged
  DataParallelOptions data_options = {};
  /// Instead: the layers of this rank are split over the data axis, as ShardedDataParallel splits a model.
  std::optional<ShardedOptions> shard = {};
  bool dynamic_shapes = false;  ///< tensors between stages may change their shapes when the inputs do not
};

struct PipelineStepOptions {
  optim::GradScaler* scaler = nullptr;
  double clip_norm = 0;  ///< above 0: clip_grad_norm() over all stages, after unscaling
};

struct PipelineAccumulateOptions {
  optim::GradScaler* scaler = nullptr;  ///< the gradients are left scaled
  double share = 1;                     ///< the loss counts so much: 1 / the number of batches
};

/// Move-only. Thread rule: one thread, that of the training.
class Pipeline {
 public:
  /// Called by all members. UsageError on every one for options that cannot be or differ, with fewer layers than stages,
  /// for parameters that layers share without saying so.
  Pipeline(std::vector<PipelineLayer> layers, const Group& group, const PipelineOptions& options);
  Pipeline(Pipeline&&) noexcept = default;
  Pipeline& operator=(Pipeline&&) noexcept = default;

  /// Forward, backward, step, and clears the gradients. Returns the mean loss of the whole batch, over the data axis too,
  /// as one double: the same on every rank. UsageError on every rank, before anything has changed: fewer rows than
  /// micro-batches, other rows of targets than of inputs, other values on other ranks, an optimizer of other parameters
  /// than parameters(), LBFGS. Every rank: those of the other pipelines along the data axis too.
  torch::Tensor train_batch(const BatchTensors& inputs, const BatchTensors& targets, torch::optim::Optimizer& optimizer,
                            const PipelineStepOptions& options = {});
  /// Forward and backward alone: adds to the gradients.
  ///
  ///   { auto local = pipe.no_sync();  pipe.accumulate(x1, y1, {.share = 0.5}); }
  ///   pipe.accumulate(x2, y2, {.share = 0.5});
  ///   optim::clip_grad_norm(pipe.parameters(), 1.0);           // over all stages
  ///   adam.step();  adam.zero_grad();
  torch::Tensor accumulate(const BatchTensors& inputs, const BatchTensors& targets,
                           const PipelineAccumulateOptions& options = {});
  /// The mean loss in evaluation mode, without gradients.
  torch::Tensor eval_batch(const BatchTensors& inputs, const BatchTensors& targets);
  /// In evaluation mode: the outputs on the last rank, nothing on the others.
  std::vector<torch::Tensor> predict(const BatchTensors& inputs);

  /// What the optimizer of this rank steps; with `.shard` its pieces. A parameter that is tied to another of this rank is
  /// not among them. A rank whose layers have no parameters has one without elements.
  std::vector<torch::Tensor> parameters() const;
  /// The same by the names under which a checkpoint has them, for groups of parameters.
  torch::OrderedDict<std::string, torch::Tensor> named_parameters() const;
  /// While it lives, gradients stay with the rank: neither averaged over the data axis nor added up where tied.
  [[nodiscard]] NoSync no_sync();

  /// The layers of this rank, by their names: "block.fc.weight".
  torch::nn::Module* operator->() const;
  torch::nn::Module& operator*() const { return *operator->(); }
  /// "stage 1 of 4: layers block3 to block5", one line for each stage of this rank.
  std::string describe() const;

 private:
  class State;
  std::shared_ptr<State> state_;
};

}  // namespace trireme
