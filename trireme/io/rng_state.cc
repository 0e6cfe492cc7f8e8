#include "trireme/io/rng_state.h"

#include <torch/torch.h>

#include "trireme/core/error.h"

namespace trireme::io {
namespace {

std::vector<torch::Device> devices() {
  std::vector<torch::Device> all{torch::Device(torch::kCPU)};
  const size_t cuda = torch::cuda::is_available() ? torch::cuda::device_count() : 0;
  for (size_t i = 0; i < cuda; ++i) all.emplace_back(torch::kCUDA, static_cast<c10::DeviceIndex>(i));
  return all;
}

at::Generator generator_of(const torch::Device& device) {
  return at::globalContext().defaultGenerator(device);
}

void set_state(const torch::Device& device, const torch::Tensor& state) {
  at::Generator generator = generator_of(device);
  const std::lock_guard lock(generator.mutex());
  try {
    generator.set_state(state);
  } catch (const c10::Error& error) {
    throw UsageError("the state of {}'s random numbers ({} bytes) is not one of this libtorch: {}", device.str(),
                     state.numel(), error.what_without_backtrace());
  }
}

}  // namespace

TensorMap rng_state() {
  TensorMap states;
  for (const torch::Device& device : devices()) {
    at::Generator generator = generator_of(device);
    const std::lock_guard lock(generator.mutex());
    states.insert(device.str(), generator.get_state());
  }
  return states;
}

void set_rng_state(const TensorMap& states) {
  if (!states.contains("cpu"))
    throw UsageError("the random number states have no 'cpu' among {} entries", states.size());
  for (const torch::Device& device : devices())
    if (const torch::Tensor* state = states.find(device.str())) set_state(device, *state);
}

}  // namespace trireme::io
