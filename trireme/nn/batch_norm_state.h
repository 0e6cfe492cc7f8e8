// How batch normalisation layers run beyond their own options. parallel/ sets it; layers that do the work of
// torch::nn::BatchNorm2d themselves (nn/fused/) ask.
#pragma once

#include <torch/types.h>

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

/// Says whether the layer with this weight is normalised over several ranks, and so not from its own batch.
using IsJoined = bool (*)(const torch::Tensor& weight);
void set_is_batch_norm_joined(IsJoined is_joined);
bool is_batch_norm_joined(const torch::Tensor& weight);

}  // namespace trireme::nn
