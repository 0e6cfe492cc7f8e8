// The model that a Step trains: a network (network.h), and what averages its gradients over the ranks.
//
//   DataParallel model(Net(), world);
//   train::StepModel averaged = model;            // gradients are averaged over the ranks; or a ShardedDataParallel
//   train::StepModel alone = Net();               // a holder or a std::shared_ptr: gradients stay on this rank
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <memory>
#include <utility>

#include "trireme/parallel/data_parallel.h"
#include "trireme/parallel/sharded_data_parallel.h"
#include "trireme/train/network.h"

namespace trireme::train {

/// A small value that keeps the module alive.
struct StepModel {
  std::shared_ptr<torch::nn::Module> module;
  Forward forward;                         ///< empty: the module's forward() does not take tensors
  std::shared_ptr<GradientExchange> sync;  ///< null: nothing is averaged

  StepModel(Network net, std::shared_ptr<GradientExchange> with = {})  // NOLINT(google-explicit-constructor)
      : module(std::move(net.module)), forward(std::move(net.forward)), sync(std::move(with)) {
    if (const auto shards = std::dynamic_pointer_cast<ShardSync>(sync)) forward = checked(std::move(forward), shards);
  }
  template <std::derived_from<torch::nn::Module> Net>
  StepModel(std::shared_ptr<Net> net,
            std::shared_ptr<GradientExchange> with = {})  // NOLINT(google-explicit-constructor)
      : module(net), sync(std::move(with)) {
    if constexpr (TakesTensors<Net>) forward = Network(net).forward;
  }
  template <typename Net>
  StepModel(const torch::nn::ModuleHolder<Net>& net)  // NOLINT(google-explicit-constructor)
      : StepModel(net.ptr()) {}
  template <std::derived_from<torch::nn::Module> Net>
  StepModel(const Net& net) : StepModel(Network(net)) {}  // NOLINT(google-explicit-constructor)
  template <typename M>
  StepModel(DataParallel<M>& model) : StepModel(model.module()) {  // NOLINT(google-explicit-constructor)
    sync = model.sync();
  }
  template <typename M>
  StepModel(ShardedDataParallel<M>& model) : StepModel(model.module()) {  // NOLINT(google-explicit-constructor)
    sync = model.sync();
    if (forward) forward = checked(std::move(forward), model.sync());
  }

 private:
  /// As ShardedDataParallel::forward().
  static Forward checked(Forward forward, std::shared_ptr<ShardSync> shards) {
    return [forward = std::move(forward), shards = std::move(shards)](const Tensors& inputs) {
      shards->rethrow_failure();
      Tensors outputs = forward(inputs);
      shards->rethrow_failure();
      return outputs;
    };
  }
};

}  // namespace trireme::train
