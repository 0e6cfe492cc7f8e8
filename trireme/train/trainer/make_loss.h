// Loss.Train and Loss.Eval -> functions of outputs and labels.
//
//   Losses losses = make_losses(config.loss.train, section);
//   Losses::Values values = losses(outputs, {.target = labels, .labelled = 64});
//   values.total.backward();
//
// CELoss, MixCELoss, MultiLabelLoss and BCELoss are of the model that is evaluated; the Distillation… ones of the
// models they name. Those that look at labels see the labelled samples only, the others all. Mixup's and CutMix' labels
// are distributions, so MixCELoss is the cross entropy with them.
#pragma once

#include <torch/types.h>

#include <functional>
#include <string>
#include <vector>

#include "trireme/config/loss_config.h"
#include "trireme/train/trainer/role_models.h"

namespace trireme::trainer {

struct Labels {
  torch::Tensor target;
  int64_t labelled = 0;  ///< the first so many samples have one
};

class Losses {
 public:
  struct One {
    std::string name;
    double weight = 1;
    bool needs_labels = true;
    std::function<torch::Tensor(const Outputs&, const torch::Tensor& target)> value;
  };
  struct Values {
    std::vector<torch::Tensor> each;  ///< weighted, in the order of names()
    torch::Tensor total;

    /// Each, then the total: for a Meter.
    std::vector<torch::Tensor> with_total() const;
  };

  explicit Losses(std::vector<One> losses) : losses_(std::move(losses)) {}

  Values operator()(const Outputs& outputs, const Labels& labels) const;
  /// Of `each`; a name that comes twice is numbered.
  std::vector<std::string> names() const;
  /// The same and "loss", the total.
  std::vector<std::string> names_with_total() const;
  bool need_labels() const;

 private:
  std::vector<One> losses_;
};

/// UsageError with file and line for an unknown loss and parameters that cannot be.
Losses make_losses(const std::vector<config::Loss>& losses, const config::Node& section);

}  // namespace trireme::trainer
