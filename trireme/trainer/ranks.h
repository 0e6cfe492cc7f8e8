// All that the trainer knows of other ranks. Everything else in this module is written as if there were one process.
//
//   Ranks ranks(config.global);                        // meets the others; on a GPU or the CPU, as the file says
//   ranks.share(net, {teacher});                       // rank 0's weights everywhere, gradients averaged from now on
//
// For one thread at a time. The functions below `share` are called by every rank at the same places.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/config/global_config.h"
#include "trireme/parallel/data_parallel.h"

namespace trireme::trainer {

class Ranks {
 public:
  /// UsageError that names `-o Global.device=cpu` when the file wants a GPU and there is none.
  explicit Ranks(const config::Global& global);

  RankInfo me() const { return world_; }
  bool is_main() const { return world_.rank() == 0; }
  torch::Device device() const { return device_; }
  const Group& group() const { return world_; }

  /// `trained` takes part in the exchange of gradients, the frozen ones only get rank 0's weights.
  void share(const std::shared_ptr<torch::nn::Module>& trained,
             const std::vector<std::shared_ptr<torch::nn::Module>>& frozen);
  /// While it lives, gradients add up on this rank only; nothing when `averaged`.
  std::optional<NoSync> gradients(bool averaged) const;

  /// The numbers of each rank, by rank; their counts may differ.
  std::vector<std::vector<double>> numbers_of_all(const std::vector<double>& mine) const;
  /// In place: the largest value of any rank.
  void largest(const torch::Tensor& tensor) const;
  /// Rank 0's text.
  std::string from_main(const std::string& text) const;
  /// Rank 0 does it; the others wait, and throw too when it throws.
  void on_main(const std::function<void()>& work) const;

 private:
  World world_;
  torch::Device device_;
  std::shared_ptr<GradientSync> sync_;  // null before share()
};

}  // namespace trireme::trainer
