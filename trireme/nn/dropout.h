// Dropout with the choice of where its scale goes.
//
//   nn::Dropout dropout(0.2, nn::DropoutScale::in_evaluation);
//
// torch multiplies what it keeps by 1 / (1 - p), so that evaluation need not do anything. PaddleClas' networks keep it
// as it is ("downscale_in_infer") and multiply by 1 - p in evaluation: their weights give the right outputs only so.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

namespace trireme::nn {

enum class DropoutScale { in_training, in_evaluation };

class DropoutImpl : public torch::nn::Module {
 public:
  /// UsageError unless 0 <= p < 1. Neither mode changes anything for p = 0.
  explicit DropoutImpl(double p, DropoutScale scale = DropoutScale::in_training);
  torch::Tensor forward(const torch::Tensor& x);

 private:
  double p_;
  DropoutScale scale_;
};
TORCH_MODULE(Dropout);

}  // namespace trireme::nn
