// A module in evaluation mode for a while.
//
//   const nn::EvaluationMode mode(*net);          // then every layer is as it was: those that were frozen stay so
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <utility>
#include <vector>

namespace trireme::nn {

class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& module) {
    for (const auto& part : module.modules()) modes_.emplace_back(part, part->is_training());
    module.eval();
  }
  ~EvaluationMode() {
    for (const auto& [part, training] : modes_) part->train(training);  // the outer ones first
  }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes_;
};

}  // namespace trireme::nn
