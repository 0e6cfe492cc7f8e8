// A module without its type: what holds the parameters, and how to call it.
//
//   deploy::Network net = models::lenet(10);                            // a std::shared_ptr of a module
//   deploy::Network mine = MyNet(3, 10);                                // a holder as TORCH_MODULE makes them
//
// forward(images) of such a module returns a tensor, a std::vector of tensors, or a pair or tuple of them.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

namespace trireme::deploy {

/// All that forward() returns, in its order.
using Outputs = std::vector<torch::Tensor>;

inline Outputs outputs_of(torch::Tensor output) {
  return {std::move(output)};
}
inline Outputs outputs_of(Outputs outputs) {
  return outputs;
}
template <typename... Tensors>
Outputs outputs_of(const std::tuple<Tensors...>& outputs) {
  return std::apply([](const auto&... each) { return Outputs{torch::Tensor(each)...}; }, outputs);
}
template <typename First, typename Second>
Outputs outputs_of(const std::pair<First, Second>& outputs) {
  return {torch::Tensor(outputs.first), torch::Tensor(outputs.second)};
}

/// forward() takes a batch of images.
struct Network {
  std::shared_ptr<torch::nn::Module> module;
  std::function<Outputs(const torch::Tensor&)> forward;

  template <typename Call>
    requires requires(Call& call, const torch::Tensor& x) { outputs_of(call(x)); }
  Network(std::shared_ptr<torch::nn::Module> of, Call call)
      : module(std::move(of)),
        forward([call = std::move(call)](const torch::Tensor& x) mutable { return outputs_of(call(x)); }) {}
  template <typename Net>
    requires requires(Net& net, torch::Tensor x) { outputs_of(net.forward(x)); }
  Network(std::shared_ptr<Net> net)  // NOLINT(google-explicit-constructor)
      : Network(net, [net](const torch::Tensor& x) { return outputs_of(net->forward(x)); }) {}
  template <typename Net>
  Network(const torch::nn::ModuleHolder<Net>& net)  // NOLINT(google-explicit-constructor)
      : Network(net.ptr()) {}
};

}  // namespace trireme::deploy
