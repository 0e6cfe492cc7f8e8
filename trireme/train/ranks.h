// All that a training knows of other ranks, whether a Model's or the trainer's. Everything else is written as if there
// were one process.
//
//   Ranks ranks;                                        // meets the others; or Ranks(torch::kCPU)
//   ranks.share(net, {teacher});                       // rank 0's weights everywhere, gradients averaged from now on
#pragma once

#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/parallel/data_parallel.h"
#include "trireme/parallel/sharded_data_parallel.h"

namespace trireme::train {

/// A small value; for one thread at a time. From share() on its functions are called by every rank at the same places.
class Ranks {
 public:
  /// Calls init_parallel_env(). On this rank's device, or the one that is named.
  explicit Ranks(std::optional<c10::Device> device = {});
  /// The same, and the module moves to the device and is shared. Random numbers differ from rank to rank from here on:
  /// dropout must not drop the same everywhere.
  explicit Ranks(const std::shared_ptr<torch::nn::Module>& module, const std::optional<ShardedOptions>& shard = {});

  RankInfo me() const { return world_; }
  bool is_main() const { return world_.rank() == 0; }
  c10::Device device() const { return device_; }
  const Group& group() const { return world_; }

  /// Rank 0's weights for all. `trained` takes part in the exchange of gradients, unless nothing of it can be trained.
  /// With `shard` it is split over the ranks, as ShardedDataParallel does: optimizers step optim::piece_of() its parameters.
  /// UsageError on every rank when their `shard` differs.
  void share(const std::shared_ptr<torch::nn::Module>& trained,
             const std::vector<std::shared_ptr<torch::nn::Module>>& frozen = {},
             const std::optional<ShardedOptions>& shard = {});
  /// What averages the gradients; null before share() and when there is nothing to train.
  const std::shared_ptr<GradientExchange>& sync() const { return sync_; }
  /// While it lives, the weights are whole on every rank: to evaluate, where ranks may have different numbers of batches.
  /// Null when they are not split.
  std::unique_ptr<GatheredParameters> whole_weights() const;

  /// The numbers of each rank, by rank; their counts may differ.
  std::vector<std::vector<double>> numbers_of_all(const std::vector<double>& mine) const;
  /// UsageError on every rank if the datasets of the ranks are not equally large: they would wait for each other.
  void require_equal_samples(const std::string& who, int64_t samples) const;
  /// The rows of each rank, by rank, on the CPU. `mine` may be undefined where there are none.
  std::vector<torch::Tensor> rows_of_all(const torch::Tensor& mine) const;
  /// Rank 0's text.
  std::string from_main(const std::string& text) const;
  /// Rank 0 does it; the others wait, and throw too when it throws (parallel/together.h).
  void on_main(const std::function<void()>& work) const;
  /// Every rank does it; when one throws, all throw.
  void together(const std::function<void()>& work) const;

 private:
  World world_;
  c10::Device device_;
  std::shared_ptr<GradientExchange> sync_;
};

}  // namespace trireme::train
