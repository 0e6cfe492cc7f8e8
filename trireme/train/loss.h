// A loss: the average over the samples of a batch, as a tensor of one element.
//
//   Loss loss = torch::nn::CrossEntropyLoss();                       // of one output and one label
//   Loss both = [](const train::Tensors& outputs, const train::Tensors& labels) {
//     return torch::cross_entropy_loss(outputs[0], labels[0]) + 0.5 * torch::mse_loss(outputs[1], labels[1]);
//   };
#pragma once

#include <torch/types.h>

#include <concepts>
#include <functional>
#include <type_traits>
#include <utility>

#include "trireme/train/network.h"

namespace trireme {

/// A small value. Default constructed it is none.
class Loss {
 public:
  using OfOne = std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& label)>;
  using OfLists = std::function<torch::Tensor(const train::Tensors& outputs, const train::Tensors& labels)>;

  Loss() = default;
  template <typename F>
    requires(!std::same_as<F, Loss> && (std::constructible_from<OfOne, F> || std::constructible_from<OfLists, F>))
  Loss(F function) {  // NOLINT(google-explicit-constructor)
    if constexpr (std::constructible_from<OfOne, F>)
      of_one_ = std::move(function);
    else
      of_lists_ = std::move(function);
  }

  explicit operator bool() const { return of_one_ || of_lists_; }
  /// Whether it takes one output and one label, not lists.
  bool takes_one() const { return static_cast<bool>(of_one_); }
  /// UsageError with both numbers when it takes one output and one label, and there are others.
  torch::Tensor operator()(const train::Tensors& outputs, const train::Tensors& labels) const;

 private:
  OfOne of_one_;
  OfLists of_lists_;
};

}  // namespace trireme
