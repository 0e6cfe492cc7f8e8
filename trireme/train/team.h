// All that a Model knows of other ranks. Everything else in this module is written as if there were one process.
#pragma once

#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "trireme/parallel/data_parallel.h"

namespace trireme {

/// For one thread at a time. Its functions, except the first four, are called by every rank at the same places.
class Team {
 public:
  /// Calls init_parallel_env(), moves the module to this rank's device and makes its weights rank 0's. Random numbers
  /// differ from rank to rank from here on: dropout must not drop the same everywhere.
  explicit Team(std::shared_ptr<torch::nn::Module> module);

  RankInfo me() const { return world_; }
  bool is_main() const { return world_.rank() == 0; }
  c10::Device device() const { return world_.device(); }
  /// While it lives, gradients add up on this rank only; nothing when `averaged`.
  std::optional<NoSync> gradients(bool averaged) const;

  /// The numbers of each rank, by rank; their counts may differ.
  std::vector<std::vector<double>> numbers_of_all(const std::vector<double>& mine) const;
  /// The rows of each rank, by rank, on the CPU. `mine` may be undefined where there are none.
  std::vector<torch::Tensor> rows_of_all(const torch::Tensor& mine) const;
  /// In place: the largest value of any rank.
  void largest(torch::Tensor& tensor) const;
  /// Rank 0 does it; the others wait, and throw too when it throws.
  void on_main(const std::function<void()>& work) const;

 private:
  World world_;
  std::shared_ptr<GradientSync> sync_;  // null when there is nothing to train
};

}  // namespace trireme
