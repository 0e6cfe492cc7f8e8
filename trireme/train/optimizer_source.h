// An optimizer, or how to make one from the parameters of a net.
//
//   .optimizer = [](auto parameters) { return torch::optim::Adam(parameters, 1e-3); }
//   .optimizer = std::make_shared<torch::optim::SGD>(net->parameters(), 0.1)         // yours, to look at later
#pragma once

#include <torch/optim/optimizer.h>

#include <concepts>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace trireme::train {

using Parameters = std::vector<torch::Tensor>;

/// A function whose result is, or points to, a T.
template <typename F, typename T>
concept Makes = requires(F make, Parameters parameters) {
  requires std::derived_from<std::remove_cvref_t<decltype(make(parameters))>, T> ||
               std::convertible_to<decltype(make(parameters)), std::shared_ptr<T>>;
};

/// A small value. Default constructed it is none: then a model can evaluate and predict, but not train.
class OptimizerSource {
 public:
  using Pointer = std::shared_ptr<torch::optim::Optimizer>;

  OptimizerSource() = default;
  template <std::derived_from<torch::optim::Optimizer> T>
  OptimizerSource(std::shared_ptr<T> optimizer)  // NOLINT(google-explicit-constructor)
      : make_([optimizer](const Parameters&) { return optimizer; }), ready_(std::move(optimizer)) {}
  template <Makes<torch::optim::Optimizer> F>
  OptimizerSource(F make)  // NOLINT(google-explicit-constructor)
      : make_([make = std::move(make)](const Parameters& parameters) { return owned(make(parameters)); }) {}

  explicit operator bool() const { return make_ != nullptr; }
  Pointer operator()(const Parameters& parameters) const { return make_(parameters); }
  /// The caller's own; null when it is still to be made.
  const Pointer& ready() const { return ready_; }

 private:
  template <typename T>
  static Pointer owned(T optimizer) {
    if constexpr (std::convertible_to<T, Pointer>)
      return Pointer(std::move(optimizer));
    else
      return std::make_shared<T>(std::move(optimizer));
  }

  std::function<Pointer(const Parameters&)> make_;
  Pointer ready_;
};

}  // namespace trireme::train
