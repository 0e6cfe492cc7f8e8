#include "trireme/nn/squeeze_excite.h"

#include <torch/torch.h>

#include "trireme/core/error.h"

namespace trireme::nn {
namespace {

torch::nn::Conv2d pointwise(int64_t in, int64_t out) {
  if (in < 1 || out < 1)
    throw UsageError("SqueezeExcite: a layer of {} channels in and {} out; both must be 1 or more", in, out);
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 1));
}

}  // namespace

SqueezeExciteImpl::SqueezeExciteImpl(const SqueezeExciteOptions& options)
    : squeeze_(register_module(options.squeeze_name, pointwise(options.channels, options.squeeze))),
      excite_(register_module(options.excite_name, pointwise(options.squeeze, options.channels))),
      gate_(options.gate) {}

torch::Tensor SqueezeExciteImpl::forward(const torch::Tensor& x) {
  const torch::Tensor mean = torch::adaptive_avg_pool2d(x, {1, 1});
  return x * activate(excite_->forward(squeeze_->forward(mean).relu_()), gate_);
}

}  // namespace trireme::nn
