// The passes of a fused block (inverted_residual.h) over the batch: plain functions of tensors, below autograd.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "trireme/nn/kernels/rows.h"

namespace trireme::nn::fused {

struct BlockSettings {
  int64_t kernel = 3;
  int64_t stride = 1;
  kernels::Act act = kernels::Act::relu;          ///< behind expand and depthwise
  kernels::Act project_act = kernels::Act::none;  ///< behind project
  bool has_expand = true;
  bool has_gate = false;
  bool has_shortcut = false;
  double gate_slope = 1.0 / 6;
  double epsilon = 1e-5;
};

/// The parameters, and likewise their gradients. Those of layers that a block does not have are undefined.
struct BlockParameters {
  at::Tensor expand, expand_scale, expand_bias;           ///< [wide, in, 1, 1], [wide], [wide]
  at::Tensor depthwise, depthwise_scale, depthwise_bias;  ///< [wide, 1, kernel, kernel], …
  at::Tensor project, project_scale, project_bias;        ///< [out, wide, 1, 1], …
  at::Tensor squeeze, squeeze_bias, excite, excite_bias;  ///< [narrow, wide, 1, 1], [narrow], [wide, narrow, 1, 1], …

  /// In the order above, without the undefined ones; and back.
  std::vector<at::Tensor> list() const;
  static BlockParameters from_list(const BlockSettings& settings, at::TensorList list);
};

/// What backward needs of forward, and what the running statistics do.
struct BlockState {
  at::Tensor expanded, filtered, projected;              ///< raw outputs of the three convolutions
  at::Tensor expand_norm, depthwise_norm, project_norm;  ///< [3, channels]: mean, 1 / deviation, variance
  at::Tensor pooled, narrow, gate;  ///< of squeeze and excitation: [images, wide], [images, narrow], …

  std::vector<at::Tensor> list() const;
  static BlockState from_list(const BlockSettings& settings, at::TensorList list);
};

/// y, channels last as x.
at::Tensor block_forward(const at::Tensor& x, const BlockParameters& parameters, const BlockSettings& settings,
                         BlockState& state);

/// The gradient of x; those of the parameters go to `gradients`.
at::Tensor block_backward(const at::Tensor& dy, const at::Tensor& x, const BlockParameters& parameters,
                          const BlockSettings& settings, const BlockState& state, BlockParameters& gradients);

}  // namespace trireme::nn::fused
