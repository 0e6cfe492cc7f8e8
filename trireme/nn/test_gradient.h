// For the tests of losses: their gradient against central differences, and how near a value must be.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>

namespace trireme::nn {

constexpr double kClose = 1e-6;

/// `x` in double; `loss` a number that depends on it smoothly.
inline void expect_gradient(const std::function<torch::Tensor(const torch::Tensor&)>& loss, const torch::Tensor& x) {
  constexpr double kStep = 1e-5;
  const torch::Tensor variable = x.detach().clone().requires_grad_();
  const torch::Tensor gradient = torch::autograd::grad({loss(variable)}, {variable})[0];
  for (int64_t i = 0; i < x.numel(); ++i) {
    const torch::Tensor up = x.clone(), down = x.clone();
    up.view(-1)[i] += kStep;
    down.view(-1)[i] -= kStep;
    const double slope = (loss(up) - loss(down)).item<double>() / (2 * kStep);
    EXPECT_NEAR(gradient.view(-1)[i].item<double>(), slope, kClose) << "element " << i;
  }
}

}  // namespace trireme::nn
