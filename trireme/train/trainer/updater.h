// From a loss to new weights: the optimizer with all that can stand around it.
//
//   Updater updater(config, net, team);
//   { const auto low = updater.autocast();  outputs = net.forward(images);  loss = … ; }
//   updater.backward(loss);
//   updater.step(lr);                                   // false: gradients overflowed, on whichever rank; no step made
//
// Optimizer (SGD, Momentum, Adam, AdamW, RMSProp), L1 or L2 decay, clip_norm, mixed precision with its loss scale (AMP)
// and the average of the weights (EMA), each there when the configuration says so. Made after the network has its
// weights, its device and its precision (optim::lower_precision, for level O2). For one thread at a time.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <optional>
#include <vector>

#include "trireme/config/train_config.h"
#include "trireme/optim/amp.h"
#include "trireme/optim/ema.h"
#include "trireme/optim/master_weights.h"
#include "trireme/train/team.h"
#include "trireme/train/trainer/network.h"

namespace trireme::trainer {

/// How AMP is to be taken: fp16 on a GPU and bf16 on a CPU unless AMP.dtype says otherwise.
struct Precision {
  bool low = false;          ///< the forward pass
  bool low_weights = false;  ///< level O2
  bool low_eval = false;     ///< evaluation too
  torch::ScalarType dtype = torch::kBFloat16;
  torch::DeviceType device = torch::kCPU;
};
Precision precision_of(const config::Amp& amp, torch::DeviceType device);

class Updater {
 public:
  Updater(const config::TrainConfig& config, const Network& net, const Team& team);

  optim::Autocast autocast() const;
  const Precision& precision() const { return precision_; }

  void backward(const torch::Tensor& loss);
  bool step(double lr);

  // For checkpoints.
  torch::nn::Module& module() { return *module_; }
  torch::optim::Optimizer& optimizer() { return *optimizer_; }
  optim::GradScaler& scaler() { return *scaler_; }
  optim::Ema* ema() { return ema_.get(); }  ///< null: none
  optim::MasterWeights* masters() { return masters_ ? &*masters_ : nullptr; }

 private:
  Precision precision_;
  std::shared_ptr<torch::nn::Module> module_;
  std::optional<double> clip_norm_;
  double l1_ = 0;
  std::vector<torch::Tensor> decaying_;          // with l1_
  std::optional<optim::MasterWeights> masters_;  // with O2
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::optional<optim::GradScaler> scaler_;
  std::unique_ptr<optim::Ema> ema_;
};

}  // namespace trireme::trainer
