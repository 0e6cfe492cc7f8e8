// The weights of a model that is split over the ranks, in one place: for a file, an export, a look.
//
//   io::TensorMap weights = whole_state_dict(pipe, world);           // every rank calls it
//   if (world.rank() == 0) {
//     auto net = models::resnet50();                                 // the same network, not split
//     io::load_into(*net, weights);
//     deploy::export_model(net, {.input = {.channels = 3, .height = 224, .width = 224}}, "inference");
//   }
#pragma once

#include "trireme/comm/group.h"
#include "trireme/io/checkpoint/training_state.h"

namespace trireme {

/// Parameters and buffers on the CPU, by the names of a checkpoint: on rank 0 of the group, nothing on the others. Of any
/// module, ShardedDataParallel, Pipeline, layers of tensor parallelism. Called by every rank that has a part of the model;
/// brings the tensors together one at a time, those of a Pipeline at once. UsageError on every rank when rank 0 of the
/// group is not the first of its Pipeline, which alone gets all layers.
io::TensorMap whole_state_dict(const io::ModuleRef& model, const Group& group);

}  // namespace trireme
