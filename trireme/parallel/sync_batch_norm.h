// Batch normalisation over the batches of all ranks: what one process would compute on the joined batch.
//
//   auto net = Net();
//   convert_sync_batch_norm(*net, world);             // before or after DataParallel
//
// libtorch's C++ models hold their layers as typed members, so a layer cannot be exchanged for another from outside.
// Instead the layers of the model are marked, and the operator underneath (aten::batch_norm) normalises marked ones
// over all ranks: any model works as it is, with the same state_dict. Only training is affected; evaluation uses the
// running statistics.
#pragma once

#include <torch/nn/module.h>

#include "trireme/comm/group.h"

namespace trireme {

/// Marks every BatchNorm1d, 2d and 3d inside `module`; their training forward and backward become collectives of
/// `group`, which every member must call equally often. Returns how many. UsageError for a layer that has neither
/// weight nor running statistics, by which it could be known again. Batches may differ in size between ranks.
int convert_sync_batch_norm(torch::nn::Module& module, const Group& group = Group::world());

/// Whether a layer inside is marked.
bool has_sync_batch_norm(const torch::nn::Module& module);

}  // namespace trireme
