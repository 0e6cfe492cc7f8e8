// The operator under every batch normalisation layer (aten::batch_norm), taken over for what libtorch's own cannot do:
// normalise over several ranks (sync_batch_norm.h), and run without an update of the running statistics (recompute.h).
// Other layers and other calls go on to libtorch's own.
#pragma once

#include <torch/types.h>

#include "trireme/comm/group.h"

namespace trireme::parallel {

/// From now on the layer with this weight (or running mean, without a weight) is normalised over the batches of the
/// group when it trains.
void join_batch_norm(const torch::Tensor& known_by, const Group& group);

/// The group given to join_batch_norm(); not a member when it was not called for this tensor.
Group batch_norm_group(const torch::Tensor& known_by);

/// From now on layers heed nn::RunningStatisticsStay.
void heed_running_statistics();

}  // namespace trireme::parallel
