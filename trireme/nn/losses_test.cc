// The expected numbers were computed with paddle 3.3.1's functions in double, after PaddleClas' formulas.
#include "trireme/nn/losses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "trireme/core/test_support.h"
#include "trireme/nn/test_gradient.h"

namespace trireme::nn {
namespace {

using testing::HasSubstr;
using torch::Tensor;

Tensor logits() {
  return torch::tensor({{1.0, 2.0, -0.5}, {0.3, -1.2, 0.7}}, torch::kDouble);
}
Tensor labels() {
  return torch::tensor({1, 2}, torch::kLong);
}
Tensor soft() {
  return torch::tensor({{0.7, 0.3, 0.0}, {0.0, 0.5, 0.5}}, torch::kDouble);
}
Tensor many() {
  return torch::tensor({{1.0, 0.0, 1.0}, {0.0, 0.0, 1.0}}, torch::kDouble);
}

TEST(CrossEntropy, RefusesLabelsThatDoNotFit) {
  EXPECT_THAT(refusal([] { ce_loss(logits(), torch::zeros({3}, torch::kLong)); }),
              HasSubstr("Long of shape [3] do not fit logits of shape [2, 3]"));
  EXPECT_THAT(refusal([] { ce_loss(logits(), torch::zeros({2, 3}, torch::kLong)); }), HasSubstr("[2, 3]"));
  EXPECT_THAT(refusal([] { ce_loss(logits(), torch::zeros({2, 4})); }), HasSubstr("[2, 4]"));
  EXPECT_THAT(refusal([] { ce_loss(logits()[0], labels()); }), HasSubstr("[samples, classes]"));
  EXPECT_THAT(refusal([] { ce_loss(logits(), labels(), {.epsilon = 1}); }), HasSubstr("epsilon 1"));
  EXPECT_THAT(refusal([] { multi_label_loss(logits(), many(), {.weight_ratio = true}); }),
              HasSubstr("expected [2, 2, 3]"));
}

TEST(CrossEntropy, HardLabels) {
  EXPECT_NEAR(ce_loss(logits(), labels()).item<double>(), 0.4851571790676162, kClose);
  EXPECT_NEAR(ce_loss(logits(), labels().unsqueeze(1)).item<double>(), 0.4851571790676162, kClose);
  EXPECT_NEAR(ce_loss(logits(), labels().to(torch::kInt)).item<double>(), 0.4851571790676162, kClose);
  EXPECT_NEAR(ce_loss(torch::zeros({5, 10}), torch::arange(5)).item<double>(), std::log(10.0), kClose);
}

TEST(CrossEntropy, SmoothingAndSoftLabels) {
  EXPECT_NEAR(ce_loss(logits(), labels(), {.epsilon = 0.1}).item<double>(), 0.5818238417390857, kClose);
  EXPECT_NEAR(ce_loss(logits(), soft()).item<double>(), 1.310157179067616, kClose);
  EXPECT_NEAR(ce_loss(logits(), soft(), {.epsilon = 0.1}).item<double>(), 1.324323822069553, kClose);
}

// What Mixup makes of the labels; the number is MixCELoss'.
TEST(CrossEntropy, MixedLabels) {
  const Tensor lam = torch::tensor({{0.3}, {0.8}}, torch::kDouble);
  const Tensor a = torch::one_hot(labels(), 3), b = torch::one_hot(torch::zeros({2}, torch::kLong), 3);
  EXPECT_NEAR(ce_loss(logits(), lam * a + (1 - lam) * b, {.epsilon = 0.1}).item<double>(), 0.9328238324407611, kClose);
}

TEST(CrossEntropy, LowPrecisionIsWidened) {
  const Tensor low = logits().to(torch::kBFloat16).requires_grad_();
  const Tensor loss = ce_loss(low, labels(), {.epsilon = 0.1});
  EXPECT_EQ(loss.scalar_type(), torch::kFloat);
  loss.backward();
  EXPECT_EQ(low.grad().scalar_type(), torch::kBFloat16);
  EXPECT_NEAR(loss.item<double>(), 0.58182, 5e-3);
}

TEST(MultiLabel, TargetsOfAllShapes) {
  EXPECT_NEAR(multi_label_loss(logits(), many()).item<double>(), 0.8225150739055529, kClose);
  EXPECT_NEAR(multi_label_loss(logits(), many().unsqueeze(1)).item<double>(), 0.8225150739055529, kClose);
  EXPECT_NEAR(multi_label_loss(logits(), many().to(torch::kLong)).item<double>(), 0.8225150739055529, kClose);
  EXPECT_NEAR(multi_label_loss(logits(), many(), {.epsilon = 0.1, .sum_classes = true}).item<double>(),
              2.4892119006892015, kClose);
}

TEST(MultiLabel, RareSidesWeighMore) {
  const Tensor shares = torch::tensor({0.2, 0.6, 0.5}, torch::kDouble).expand({2, 3});
  const Tensor targets = torch::stack({many(), shares}, 1);
  EXPECT_NEAR(multi_label_loss(logits(), targets, {.weight_ratio = true}).item<double>(), 1.3944431444092462, kClose);
}

TEST(Binary, ThresholdAfterSmoothing) {
  EXPECT_NEAR(bce_loss(logits(), labels(), {.epsilon = 0.1}).item<double>(), 0.572515073905553, kClose);
  const Tensor ones = torch::ones({2, 3}, torch::kDouble);
  EXPECT_NEAR(bce_loss(logits(), soft(), {.target_threshold = -1}).item<double>(),
              multi_label_loss(logits(), ones).item<double>(), kClose);
}

TEST(Losses, GradientsAreTheirSlopes) {
  expect_gradient([](const Tensor& x) { return ce_loss(x, labels(), {.epsilon = 0.1}); }, logits());
  expect_gradient([](const Tensor& x) { return ce_loss(x, soft()); }, logits());
  expect_gradient([](const Tensor& x) { return multi_label_loss(x, many(), {.sum_classes = true}); }, logits());
  expect_gradient([](const Tensor& x) { return bce_loss(x, labels()); }, logits());
}

}  // namespace
}  // namespace trireme::nn
