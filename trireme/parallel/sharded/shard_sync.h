// Splits parameters, gradients and optimizer states over the ranks: the part of ShardedDataParallel that does not depend
// on the model's type.
//
// One step, in the order of events (shard_unit.h, use_watch.h)
//   forward      An operator is about to use a parameter. If its unit's values are not there, or are old because an
//                optimizer has changed some rank's shard, they are gathered first. The order in which units are used is
//                remembered; from the second step on the next one is gathered while this one computes.
//   backward     The same for the parameters that backward needs. Each gradient moves into its unit's buffer; a unit
//                that has all of them is reduced while backward goes on, in an order that all ranks share.
//   its end      Units that lack gradients are reduced last. The ranks tell each other which parameters have got a
//                gradient anywhere: the others are left without, as in one process.
//   step         The optimizer steps the pieces. Writing to one tells us that all gathered values are old.
//
// Gathers and reductions use groups of their own.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/parallel/gradient_exchange.h"

namespace trireme {

/// What is split over the ranks; each includes those before it.
enum class Shard {
  optimizer,   ///< the optimizer's states
  gradients,   ///< averaged gradients: the rest of the buffers goes when a unit is reduced
  parameters,  ///< the parameters themselves: gathered for their use, then gone
};

struct ShardedOptions {
  Shard shard = Shard::optimizer;
  int unit_size = 25;             ///< MB of parameters that travel together; a few units at a time are there
  bool broadcast_buffers = true;  ///< after each averaged backward the buffers are rank 0's
  /// torch::kBFloat16 or torch::kHalf: the model's parameters become of this type, except those of normalisations, and
  /// travel in it; the pieces, which the optimizer steps, keep all digits. Run forward under optim::Autocast, or use
  /// train::Step with level O1 or O2.
  std::optional<c10::ScalarType> param_dtype = {};
  /// In which type gradients are averaged; by default the parameters'. torch::kFloat for exact sums of low precision.
  std::optional<c10::ScalarType> reduce_dtype = {};
  /// Pieces, their gradients and so the optimizer's states are in host memory: model.parameters() are CPU tensors. The
  /// step runs on the CPU. Without an effect for a model on the CPU.
  bool offload = false;
};

namespace detail {
/// "shard = 2, unit_size = 25 MB, …": for comparisons between ranks.
std::string describe(const ShardedOptions& options);
}  // namespace detail

/// Thread rule: one forward or backward at a time.
class ShardSync final : public GradientExchange {
 public:
  /// Makes parameters and buffers rank 0's, then splits them. UsageError on every rank when the models differ.
  /// A parameter in `alone` is a unit of its own: its pieces then depend on nothing but its size, the same in every model.
  ShardSync(std::shared_ptr<torch::nn::Module> module, const Group& group, const ShardedOptions& options,
            const std::vector<torch::Tensor>& alone = {});
  ~ShardSync() override;
  ShardSync(const ShardSync&) = delete;
  ShardSync& operator=(const ShardSync&) = delete;

  const Group& group() const override;

  /// This rank's piece of every parameter of the model, in the model's order, by name.
  const torch::OrderedDict<std::string, torch::Tensor>& pieces() const;

  /// All values are there from one to the other. What is written into the parameters between them stays: each rank
  /// keeps its own part, so all must write the same; the next use throws where they have not. Called by all ranks.
  void hold();
  void let_go();

  void rethrow_failure() override;
  void abort(const std::string& reason) override;

  int unit_count() const;

 private:
  void set_enabled(bool enabled) override;

  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace trireme
