// The exponential moving average of a model's weights, which often tests better than the weights themselves.
//
//   Ema ema(*model, {.decay = 0.9999});
//   ema.update();                                               // after each optimizer step
//   { auto averaged = ema.apply();  evaluate(model); }          // the model holds the averages inside the block
//
// As in PaddleClas it covers parameters and buffers alike (batch-norm statistics too): a = decay * a + (1 - decay) * w;
// whole numbers are copied. Averages of half precision weights are kept in float.
// Requires: the model is on its device before; its tensors are shared and kept alive. Each rank holds its own average;
// with equal weights they are equal. Of a model that is split over the ranks each rank averages its own pieces: every
// rank makes the same calls. Thread rule: that of the model.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

#include "trireme/optim/split_tensors.h"

namespace trireme::optim {

class Ema {
 public:
  struct Options {
    double decay = 0.9999;
  };
  using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

  /// Starts with the model's present values. Throws UsageError for a decay outside [0, 1].
  Ema(const torch::nn::Module& model, Options options);
  Ema(const Ema&) = delete;
  Ema& operator=(const Ema&) = delete;

  /// Until the first update() or load_state() the averages are the weights: takes the model's present values, which may
  /// have been loaded since. Later calls do nothing.
  void follow_weights();
  /// Whether the model holds the averages at present.
  bool applied() const { return applied_; }

  /// Throws UsageError while the averages are applied.
  void update();

  /// Puts the averages into the model for as long as the result lives, then the weights back. Once at a time; the
  /// result must not outlive the Ema.
  class Applied {
   public:
    explicit Applied(Ema& ema);
    ~Applied();
    Applied(const Applied&) = delete;
    Applied& operator=(const Applied&) = delete;

   private:
    Ema& ema_;
    std::vector<torch::Tensor> weights_;
  };
  Applied apply() { return Applied(*this); }

  /// The averages by the model's names, shared and not copied: for a checkpoint. Of split parameters this rank's pieces.
  const NamedTensors& state() const { return averages_; }
  /// Takes the values of another Ema of the same model. Throws UsageError that names the first tensor that is missing
  /// or has another shape; then nothing is changed.
  void load_state(const NamedTensors& state);

 private:
  Options options_;
  std::vector<torch::Tensor> live_;  // the model's own tensors
  NamedTensors averages_;            // in the same order
  SplitMarks split_;                 // of the averages of split parameters
  bool begun_ = false;
  bool applied_ = false;
};

}  // namespace trireme::optim
