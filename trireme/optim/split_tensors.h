// Parameters of which this rank has only a part. A norm over all gradients, or the question whether any of them is not
// finite, then concerns the other ranks too.
//
// ShardedDataParallel marks its pieces, layers of tensor parallelism their parameters, Pipeline those of its stages,
// MasterWeights the copies of those;
// grad_norm(), clip_grad_norm(), GradScaler and Checkpoint ask. They then communicate: every rank must call them.
#pragma once

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace trireme::optim {

/// How the parts of one model's tensors are brought together. Collective, except cut(), sizes() and put().
struct SplitTensors {
  std::function<void(const torch::Tensor&)> sum;  ///< in place: the sum over the ranks that hold other parts
  std::function<void(const torch::Tensor&)> max;
  /// All parts of something that has a number for each number of the parameter (an optimizer's state), in the
  /// parameter's own shape; and this rank's part of such a tensor.
  std::function<torch::Tensor(const torch::Tensor& piece, const torch::Tensor& part)> join;
  std::function<torch::Tensor(const torch::Tensor& piece, const torch::Tensor& whole)> cut;
  /// The sizes of what join() gives. Not collective.
  std::function<std::vector<int64_t>(const torch::Tensor& piece)> sizes;
  /// The whole of a parameter of the model, which may itself be a part, in memory that others may share.
  std::function<torch::Tensor(const torch::Tensor& parameter)> whole;
  /// Gives a parameter of the model this rank's part of new values, as cut() gives it; every rank does so.
  std::function<void(const torch::Tensor& parameter, const torch::Tensor& part)> put;
  /// World ranks that have different parts of each parameter of the model; empty: all have the same.
  std::vector<int> ranks = {};
};

/// `piece` is this rank's part of `whole`, a parameter of the model. Holds for as long as `how` lives; both must live as
/// long.
void mark_split(const torch::Tensor& whole, const torch::Tensor& piece, const std::shared_ptr<const SplitTensors>& how);

/// Keeps marks alive.
using SplitMarks = std::vector<std::shared_ptr<const SplitTensors>>;
/// Tensors that have a number for each number of others, one for one (masters, averages), are split as those are. Holds
/// for as long as the result lives; a tensor that is its own original, or whose original is not split, stays as it is.
[[nodiscard]] SplitMarks mark_split_like(const std::vector<torch::Tensor>& copies,
                                         const std::vector<torch::Tensor>& originals);

/// Of a piece or of a whole; null for a parameter that is not split.
std::shared_ptr<const SplitTensors> split_of(const torch::Tensor& parameter);
/// Of a whole; the parameter itself when it is not split. What an optimizer steps.
torch::Tensor piece_of(const torch::Tensor& parameter);

/// A model whose other parameters lie on other ranks, as the stages of a Pipeline: what is added up over the parameters
/// here must be added up over the ranks. Collective.
struct SpreadModel {
  std::function<void(const torch::Tensor&)> sum;  ///< in place, of one number
  std::function<void(const torch::Tensor&)> max;
};
/// Holds for as long as `model` lives; the parameter must live as long.
void mark_spread(const torch::Tensor& parameter, const std::shared_ptr<const SpreadModel>& model);
/// Of the first of them that has one; null when none has.
std::shared_ptr<const SpreadModel> spread_of(const std::vector<torch::Tensor>& parameters);

/// Why this optimizer cannot step its parameters: it computes the step of a number from other numbers too, as
/// torch::optim::LBFGS does, and other ranks have some of them. Empty for every other one.
std::string complaint_about_parts(const torch::optim::Optimizer& optimizer);

/// The parameters by how they are split, in an order that all ranks share.
struct SplitGroup {
  std::shared_ptr<const SplitTensors> how;  ///< null: they are whole
  std::vector<torch::Tensor> parameters;
};
std::vector<SplitGroup> by_split(const std::vector<torch::Tensor>& parameters);

}  // namespace trireme::optim
