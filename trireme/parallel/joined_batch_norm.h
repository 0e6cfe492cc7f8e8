// Batch normalisation of this rank's batch by the statistics of the batches of all ranks, with its backward.
#pragma once

#include <torch/types.h>

#include <memory>
#include <optional>

#include "trireme/comm/group.h"
#include "trireme/nn/batch_norm_state.h"

namespace trireme::parallel {

/// What the ranks of the group exchange.
std::shared_ptr<const nn::NormPeers> norm_peers_of(const Group& group);

struct JoinedBatchNormOptions {
  torch::Tensor running_mean;  ///< updated; undefined: no statistics are kept
  torch::Tensor running_var;
  double momentum = 0;
  double epsilon = 0;
  Group group;
};

/// Forward and backward are collectives of the group. Batches may differ in size, type and layout between ranks. In the
/// fused passes of nn/fused/ where they take the input.
torch::Tensor joined_batch_norm(const torch::Tensor& input, const std::optional<torch::Tensor>& weight,
                                const std::optional<torch::Tensor>& bias, const JoinedBatchNormOptions& options);

}  // namespace trireme::parallel
