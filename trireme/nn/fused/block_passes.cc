#include "trireme/nn/fused/block_passes.h"

namespace trireme::nn::fused {
namespace {

/// The tensors that are there, in their order; from_list() takes them back in the same order.
std::vector<at::Tensor> defined_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> defined;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined()) defined.push_back(tensor);
  return defined;
}

}  // namespace

std::vector<at::Tensor> BlockParameters::list() const {
  return defined_of({depthwise, depthwise_scale, depthwise_bias, project, project_scale, project_bias, expand,
                     expand_scale, expand_bias, squeeze, squeeze_bias, excite, excite_bias});
}

BlockParameters BlockParameters::from_list(const BlockSettings& settings, at::TensorList list) {
  BlockParameters all;
  size_t next = 0;
  const auto take = [&](auto&... tensors) { ((tensors = list[next++]), ...); };
  take(all.depthwise, all.depthwise_scale, all.depthwise_bias, all.project, all.project_scale, all.project_bias);
  if (settings.has_expand) take(all.expand, all.expand_scale, all.expand_bias);
  if (settings.has_gate) take(all.squeeze, all.squeeze_bias, all.excite, all.excite_bias);
  return all;
}

std::vector<at::Tensor> BlockState::list() const {
  return defined_of({filtered, projected, depthwise_norm, project_norm, expanded, expand_norm, pooled, narrow, gate});
}

BlockState BlockState::from_list(const BlockSettings& settings, at::TensorList list) {
  BlockState all;
  size_t next = 0;
  const auto take = [&](auto&... tensors) { ((tensors = list[next++]), ...); };
  take(all.filtered, all.projected, all.depthwise_norm, all.project_norm);
  if (settings.has_expand) take(all.expanded, all.expand_norm);
  if (settings.has_gate) take(all.pooled, all.narrow, all.gate);
  return all;
}

}  // namespace trireme::nn::fused
