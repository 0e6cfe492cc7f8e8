// A hook on a parameter's gradient accumulator, removed with this object.
//
//   GradientWatch watch(parameter.accumulator, [&] { … });          // called after each gradient of the parameter
#pragma once

#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include <functional>
#include <memory>
#include <utility>

#include "trireme/parallel/node_pointer.h"

namespace trireme::parallel {

class GradientWatch {
 public:
  GradientWatch(NodePointer accumulator, std::function<void()> on_gradient) : accumulator_(std::move(accumulator)) {
    auto hook = [f = std::move(on_gradient)](const torch::autograd::variable_list& outputs,
                                             const torch::autograd::variable_list&) { return f(), outputs; };
    key_ = accumulator_->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(std::move(hook)));
  }
  ~GradientWatch() { accumulator_->del_post_hook(key_); }
  GradientWatch(const GradientWatch&) = delete;
  GradientWatch& operator=(const GradientWatch&) = delete;

 private:
  NodePointer accumulator_;
  uintptr_t key_;
};

}  // namespace trireme::parallel
