// How batch normalisation layers run beyond their own options. parallel/ sets it; layers that do the work of
// torch::nn::BatchNorm2d themselves (nn/fused/) ask.
#pragma once

#include <torch/types.h>

#include <memory>

namespace trireme::nn {

/// While it lives, batch normalisation on this thread leaves its running mean and variance as they are: in a forward
/// pass that is made a second time they have had their update. The layer's own counter, num_batches_tracked, still
/// counts.
class RunningStatisticsStay {
 public:
  RunningStatisticsStay();
  ~RunningStatisticsStay();
  RunningStatisticsStay(const RunningStatisticsStay&) = delete;
  RunningStatisticsStay& operator=(const RunningStatisticsStay&) = delete;

 private:
  bool before_;
};
bool running_statistics_stay();

/// The ranks over whose batches a layer is normalised. Both calls are collectives: one join() in each forward, one sum()
/// in its backward, with the same numbers on every rank however the rank computes them.
class NormPeers {
 public:
  virtual ~NormPeers() = default;
  /// From [2 * channels + 1] in double, mean and variance of each channel and how many numbers a channel has: the same for
  /// the batches of all ranks together.
  virtual torch::Tensor join(const torch::Tensor& moments) const = 0;
  /// From [2, channels] in double, the sums of g and of g * normalised x, where g is the gradient of the normalised x
  /// times weight plus bias: the sums over all ranks.
  virtual torch::Tensor sum(const torch::Tensor& sums) const = 0;
};

/// Gives the peers of the layer with this weight; null: it is normalised from its own batch.
using FindNormPeers = std::shared_ptr<const NormPeers> (*)(const torch::Tensor& weight);
void set_find_norm_peers(FindNormPeers find);
std::shared_ptr<const NormPeers> norm_peers(const torch::Tensor& weight);

}  // namespace trireme::nn
