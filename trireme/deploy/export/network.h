// A module without its type: what holds the parameters, and how to call it.
//
//   deploy::Network net = models::lenet(10);                            // a std::shared_ptr of a module
//   deploy::Network mine = MyNet(3, 10);                                // a holder as TORCH_MODULE makes them
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <functional>
#include <memory>
#include <utility>

namespace trireme::deploy {

/// forward() takes a batch of images and returns one row of scores for each.
struct Network {
  std::shared_ptr<torch::nn::Module> module;
  std::function<torch::Tensor(const torch::Tensor&)> forward;

  Network(std::shared_ptr<torch::nn::Module> of, std::function<torch::Tensor(const torch::Tensor&)> call)
      : module(std::move(of)), forward(std::move(call)) {}
  template <typename Net>
    requires requires(Net& net, torch::Tensor x) { torch::Tensor(net.forward(x)); }
  Network(std::shared_ptr<Net> net)  // NOLINT(google-explicit-constructor)
      : Network(net, [net](const torch::Tensor& x) -> torch::Tensor { return net->forward(x); }) {}
  template <typename Net>
  Network(const torch::nn::ModuleHolder<Net>& net)  // NOLINT(google-explicit-constructor)
      : Network(net.ptr()) {}
};

}  // namespace trireme::deploy
