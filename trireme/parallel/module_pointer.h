// A module, whether it is held as TORCH_MODULE makes holders or by a std::shared_ptr.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>

namespace trireme::detail {

template <typename Contained>
std::shared_ptr<torch::nn::Module> module_pointer(const std::shared_ptr<Contained>& module) {
  return module;
}
template <typename Holder>
std::shared_ptr<torch::nn::Module> module_pointer(const Holder& holder) {
  return holder.ptr();
}

}  // namespace trireme::detail
