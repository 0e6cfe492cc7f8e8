// For tests: what is fused must be right on every device there is.
#pragma once

#include <torch/torch.h>

#include <vector>

namespace trireme::optim {

/// The CPU, and a GPU where libtorch finds one.
inline std::vector<torch::Device> devices() {
  std::vector<torch::Device> all = {torch::kCPU};
  if (torch::cuda::is_available()) all.emplace_back(torch::kCUDA, 0);
  return all;
}

}  // namespace trireme::optim
