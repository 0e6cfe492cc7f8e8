// Whether all ranks have built the same model, and the same weights for all of them.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "trireme/comm/group.h"

namespace trireme {

/// "float[10, 5]", and whether it requires no gradient.
std::string describe_tensor(const torch::Tensor& tensor);

/// One line for each parameter and buffer: "parameter fc.weight float[10, 5]", with strides where they are unusual.
std::vector<std::string> describe_model(const torch::nn::Module& module);

/// Called by all members. UsageError on every one when a model differs from rank 0's, with the first difference. `who`
/// begins the message.
void require_same_model(const torch::nn::Module& module, const Group& group, const char* who);

/// UsageError when a parameter is split over ranks of this group (nn::ColumnParallelLinear): they must keep their parts.
void require_no_split_over(const torch::nn::Module& module, const Group& group, const char* who);

/// Called by all members: the tensors of `root` for every one.
void broadcast_tensors(const std::vector<torch::Tensor>& tensors, int root, const Group& group);
/// The same of all parameters and buffers.
void broadcast_state(const torch::nn::Module& module, int root, const Group& group);

}  // namespace trireme
