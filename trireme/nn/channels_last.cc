#include "trireme/nn/channels_last.h"

#include <torch/torch.h>

namespace trireme::nn {

void to_channels_last(torch::nn::Module& module) {
  constexpr int64_t kImageDims = 4;
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : module.parameters()) {
    if (parameter.dim() != kImageDims) continue;
    // With the strides that gradients will have, also where one channel leaves a choice: the exchange of gradients lays
    // its buckets out after the weights.
    const auto options = parameter.options().memory_format(torch::MemoryFormat::ChannelsLast);
    parameter.set_data(torch::empty_like(parameter, options).copy_(parameter));
  }
}

}  // namespace trireme::nn
