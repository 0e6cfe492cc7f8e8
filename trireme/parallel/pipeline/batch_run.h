// One batch through the stages of this rank, by the schedule's table.
#pragma once

#include <torch/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/parallel/gradient_exchange.h"
#include "trireme/parallel/pipeline/pipeline.h"
#include "trireme/parallel/pipeline/split_backward.h"
#include "trireme/parallel/pipeline/stages.h"
#include "trireme/parallel/pipeline/wire.h"

namespace trireme::parallel {

/// A stage of this rank, and what averages its gradients over the data axis: null when there is none, or the stage has no parameters.
struct LocalStage {
  std::shared_ptr<StageModule> module;
  std::shared_ptr<GradientExchange> exchange;
};

struct BatchWork {
  std::vector<std::vector<torch::Tensor>> inputs{};             ///< of each micro-batch; on the first rank
  std::vector<std::vector<torch::Tensor>> targets{};            ///< on the last
  std::vector<double> weights{};                                ///< of their losses
  PipelineLoss loss{};                                          ///< none: the outputs are wanted
  std::function<torch::Tensor(const torch::Tensor&)> scaled{};  ///< the loss before backward
  bool exchange = true;                                         ///< average over the data axis at the end
  BatchRandom random{};
};

class BatchRun {
 public:
  BatchRun(const StagePlan& plan, std::vector<LocalStage> stages, Wire& wire, BatchWork work)
      : plan_(plan), stages_(std::move(stages)), wire_(wire), work_(std::move(work)) {}

  /// After a failure the other ranks fail too; an error of ours also names the stage and the micro-batch.
  void run(const std::vector<Action>& actions);

  /// The weighted sum over the micro-batches, on the last rank.
  const torch::Tensor& loss() const { return loss_; }
  /// On the last rank, without a loss: of all micro-batches.
  std::vector<torch::Tensor> outputs() const;

 private:
  using Tensors = std::vector<torch::Tensor>;
  struct Kept {  // between forward and backward
    Tensors leaves;
    Tensors outputs;
    std::optional<SplitBackward> split;
  };
  using Key = std::pair<int, int>;

  void act(const Action& action);
  void forward(const Action& action);
  void backward(const Action& action);
  void input_gradient(const Action& action);
  void weight_gradient(const Action& action);

  bool is_last(int stage) const { return stage + 1 == plan_.shape.stages(); }
  LocalStage& stage_of(const Action& action) { return stages_[static_cast<size_t>(action.stage / plan_.shape.ranks)]; }
  void finish(int micro_batch, const Tensors& outputs, Kept& kept);
  void incoming(const Action& action, const Kept& kept, Tensors& roots, Tensors& gradients);
  void send_gradients(const Action& action, const Tensors& leaves, const Tensors& gradients);
  template <typename Run>
  void with_exchange(const Action& action, const Run& run);

  const StagePlan& plan_;
  std::vector<LocalStage> stages_;
  Wire& wire_;
  BatchWork work_;
  std::map<Key, Kept> kept_;
  std::map<int, int> weights_left_;  // backwards of each stage that give weights gradients
  torch::Tensor loss_;
  std::map<int, Tensors> outputs_;
};

}  // namespace trireme::parallel
