// The parameters of a model at one moment, and whether they are still the same.
//
//   ModelParameters known(*module);
//   …
//   if (!known.is_current(*module)) known = ModelParameters(*module);
//
// A parameter is known by its tensor and by its gradient accumulator, to which hooks are tied. Both may be exchanged
// behind our back: Module::to(dtype) and torch::load() give a parameter a new accumulator, a layer may be registered
// or replaced, requires_grad may change.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trireme/parallel/node_pointer.h"

namespace trireme::parallel {

struct ModelParameter {
  std::string name;
  torch::Tensor tensor;
  NodePointer accumulator;
};

class ModelParameters {
 public:
  explicit ModelParameters(const torch::nn::Module& module);

  /// Those that require a gradient, each once, however often it is registered.
  const std::vector<ModelParameter>& trainable() const { return trainable_; }
  /// Whether the model still has exactly these. A few microseconds: it runs before every backward.
  bool is_current(const torch::nn::Module& module) const;
  /// Of names, types, shapes and requires_grad of all parameters: equal on two ranks when their models are alike.
  uint64_t fingerprint() const { return fingerprint_; }
  /// In words: "parameter head.weight now requires a gradient".
  std::string first_change_since(const ModelParameters& before) const;

 private:
  struct Line {
    std::string name;
    std::string description;
    bool operator==(const Line&) const = default;
  };
  using Identity = std::pair<const c10::TensorImpl*, const torch::autograd::Node*>;

  std::vector<Line> lines_;
  std::vector<ModelParameter> trainable_;
  std::vector<Identity> identities_;  // in the order of the tree; no accumulator: requires no gradient
  uint64_t fingerprint_ = 0;
};

}  // namespace trireme::parallel
