// The net that a Step trains: the module, how to call it, and what averages its gradients over the ranks.
//
//   DataParallel model(Net(), world);
//   train::StepModel averaged = model;            // gradients are averaged over the ranks
//   train::StepModel alone = Net();               // a holder or a std::shared_ptr: gradients stay on this rank
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <concepts>
#include <functional>
#include <memory>
#include <utility>

#include "trireme/deploy/export/network.h"
#include "trireme/parallel/data_parallel.h"

namespace trireme::train {

using Forward = std::function<torch::Tensor(const torch::Tensor&)>;

/// A small value that keeps the module alive.
struct StepModel {
  std::shared_ptr<torch::nn::Module> module;
  Forward forward;                     ///< empty: the net does not take one tensor
  std::shared_ptr<GradientSync> sync;  ///< null: nothing is averaged

  StepModel(deploy::Network net, std::shared_ptr<GradientSync> with = {})  // NOLINT(google-explicit-constructor)
      : module(std::move(net.module)), forward(std::move(net.forward)), sync(std::move(with)) {}
  template <std::derived_from<torch::nn::Module> Net>
  StepModel(std::shared_ptr<Net> net, std::shared_ptr<GradientSync> with = {})  // NOLINT(google-explicit-constructor)
      : module(net), forward(call_of(net)), sync(std::move(with)) {}
  template <typename Net>
  StepModel(const torch::nn::ModuleHolder<Net>& net)  // NOLINT(google-explicit-constructor)
      : StepModel(net.ptr()) {}
  template <typename M>
  StepModel(DataParallel<M>& model) : StepModel(model.module()) {  // NOLINT(google-explicit-constructor)
    sync = model.sync();
  }

 private:
  template <typename Net>
  static Forward call_of(const std::shared_ptr<Net>& net) {
    if constexpr (requires(torch::Tensor x) { torch::Tensor(net->forward(x)); })
      return [net](const torch::Tensor& x) -> torch::Tensor { return net->forward(x); };
    else
      return {};
  }
};

}  // namespace trireme::train
