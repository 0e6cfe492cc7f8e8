// O2: the model holds its weights in bf16 or fp16, the optimizer works on fp32 copies, the masters, so that small steps
// are not lost.
//
//   lower_precision(*model, torch::kHalf);
//   optim::Momentum optimizer(model->parameters(), {.lr = 0.1});
//   MasterWeights masters(model->parameters());
//   masters.adopt(optimizer);
//   scaler.scale(loss).backward();
//   masters.take_gradients();  scaler.step(optimizer);  masters.write_back();  scaler.update();
//
// A parameter that is not of low precision (a norm's) is its own master. The gradients of the model are moved to the
// masters, and gone from the model; optimizer.zero_grad() clears them there. DataParallel exchanges the model's.
// With ShardedDataParallel the parameters are model.parameters(), this rank's pieces: masters are pieces too.
// Thread rule: that of the model.
#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "trireme/optim/split_tensors.h"

namespace trireme::optim {

/// Turns the floating-point parameters and buffers of the model to `dtype`, in place; those of normalisations stay, as
/// statistics in low precision do not converge.
void lower_precision(torch::nn::Module& module, c10::ScalarType dtype);

class MasterWeights {
 public:
  explicit MasterWeights(const std::vector<torch::Tensor>& parameters);

  /// The masters, in the order of the parameters: what the optimizer gets, and what a checkpoint should hold. A
  /// parameter that is there twice, under two names, has one master, which is there twice, too.
  const std::vector<torch::Tensor>& parameters() const { return masters_; }
  /// From now on the optimizer steps the masters in place of the parameters. Call it before the first step. Throws
  /// UsageError for a parameter that has no master, and for an optimizer that has stepped already.
  void adopt(torch::optim::Optimizer& optimizer) const;

  /// Before a step: the masters of weights that were changed since write_back() (loaded, say) take their values.
  void follow_weights();
  /// After backward(): the model's gradients become the masters' (added to what these have). A parameter without
  /// gradient leaves its master without.
  void take_gradients();
  /// After the optimizer's step: the masters' values, rounded, become the model's.
  void write_back();
  /// Ends low precision: the parameters become float32 again, with the masters' values and without gradients.
  void give_back();

 private:
  // Changes with the values of a weight.
  struct Version {
    const void* data = nullptr;
    int64_t number = 0;
    bool operator==(const Version&) const = default;
  };

  static Version version_of(const torch::Tensor& weight);
  const torch::Tensor& master_of(const torch::Tensor& parameter) const;
  void note_versions();

  std::vector<torch::Tensor> weights_;  // the model's
  std::vector<torch::Tensor> masters_;
  std::vector<Version> versions_;  // of the weights as the masters know them
  std::unordered_map<const void*, torch::Tensor> master_of_;
  SplitMarks split_;  // of masters of split weights
};

/// The way back from lower_precision(): all that is of low precision becomes float32, the parameters with their
/// masters' values where there are masters. Their gradients are dropped. UsageError for a model that
/// ShardedDataParallel has split.
void raise_precision(torch::nn::Module& module, MasterWeights* masters = nullptr);

}  // namespace trireme::optim
