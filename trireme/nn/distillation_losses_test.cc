// The expected numbers were computed with paddle 3.3.1's functions in double, after PaddleClas' formulas.
#include "trireme/nn/distillation_losses.h"

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

Tensor student() {
  return torch::tensor({{1.0, 2.0, -0.5}, {0.3, -1.2, 0.7}}, torch::kDouble);
}
Tensor teacher() {
  return torch::tensor({{0.5, 3.0, -1.0}, {1.5, 0.2, -0.4}}, torch::kDouble);
}
Tensor classes() {
  return torch::tensor({1, 2}, torch::kLong);
}
Tensor narrow_features() {
  return torch::tensor({{0.0, 1.0}, {2.0, 0.5}, {-1.0, 3.0}}, torch::kDouble);
}
Tensor wide_features() {
  return torch::tensor({{1.0, 0.0, 2.0}, {0.0, 1.0, 1.0}, {3.0, -1.0, 0.5}}, torch::kDouble);
}

TEST(Distillation, RefusesWhatDoesNotFit) {
  const Tensor other = torch::zeros({2, 4});
  EXPECT_THAT(refusal([&] { dml_loss(student(), other); }), HasSubstr("[2, 3], the teacher's [2, 4]"));
  EXPECT_THAT(refusal([&] { kl_div_loss(student(), other); }), HasSubstr("kl_div_loss"));
  EXPECT_THAT(refusal([&] { distance_loss(student(), other); }), HasSubstr("distance_loss"));
  EXPECT_THAT(refusal([&] { kl_div_loss(student(), teacher(), {.temperature = 0}); }), HasSubstr("temperature 0"));
  EXPECT_THAT(refusal([&] { dkd_loss(student(), teacher(), torch::zeros({3}, torch::kLong)); }),
              HasSubstr("shape [3]"));
  EXPECT_THAT(refusal([&] { dist_loss(student()[0], teacher()[0]); }), HasSubstr("[samples, classes]"));
  EXPECT_THAT(refusal([&] { rkd_angle_loss(narrow_features(), student()); }), HasSubstr("equally many samples"));
}

TEST(Distillation, CrossEntropyWithTheTeacher) {
  EXPECT_NEAR(distillation_ce_loss(student(), teacher()).item<double>(), 0.8659559651168911, kClose);
  EXPECT_GT(distillation_ce_loss(student(), teacher(), {.epsilon = 0.1}).item<double>(), 0.87);
}

TEST(Distillation, Dml) {
  EXPECT_NEAR(dml_loss(student(), teacher()).item<double>(), 0.3431087652628777, kClose);
  EXPECT_NEAR(dml_loss(teacher(), student()).item<double>(), 0.3431087652628777, kClose);
  EXPECT_NEAR(dml_loss(student(), teacher(), {.activation = DmlOptions::Activation::sigmoid}).item<double>(),
              0.13930527676615662, kClose);
  EXPECT_NEAR(dml_loss(student(), student()).item<double>(), 0, 1e-12);
}

TEST(Distillation, Distance) {
  using Mode = DistanceOptions::Mode;
  EXPECT_NEAR(distance_loss(student(), teacher()).item<double>(), 1.0183333333333333, kClose);
  EXPECT_NEAR(distance_loss(student(), teacher(), {.mode = Mode::l1}).item<double>(), 0.95, kClose);
  EXPECT_NEAR(distance_loss(student(), teacher(), {.mode = Mode::smooth_l1}).item<double>(), 0.4916666666666667,
              kClose);
}

TEST(Distillation, KlDivAndItsKin) {
  EXPECT_NEAR(kl_div_loss(student(), teacher()).item<double>(), 0.4425066376709407, kClose);
  EXPECT_NEAR(dkd_loss(student(), teacher(), classes(), {.temperature = 2, .alpha = 1, .beta = 8}).item<double>(),
              0.42112816118353497, kClose);
  EXPECT_NEAR(wsl_loss(student(), teacher(), classes()).item<double>(), 2.220058335320005, kClose);
  EXPECT_NEAR(wsl_loss(student(), teacher(), std::nullopt).item<double>(), 3.8560712741311165, kClose);
  EXPECT_NEAR(skd_loss(student(), teacher(), classes(), {.temperature = 4}).item<double>(), 15.545116971352359, kClose);
  EXPECT_NEAR(dist_loss(student(), teacher(), {.beta = 2, .gamma = 3}).item<double>(), 1.0365142946041708, kClose);
}

TEST(Distillation, KlDivIsDkdWeighedByTheTeacher) {
  // KL = KL of the binary part + (1 - p_t(label)) * KL of the others, for one sample.
  const Tensor s = student().narrow(0, 0, 1), t = teacher().narrow(0, 0, 1), label = classes().narrow(0, 0, 1);
  const double others = 1 - t.softmax(1)[0][1].item<double>();
  EXPECT_NEAR(dkd_loss(s, t, label, {.beta = others}).item<double>(),
              kl_div_loss(s, t, {.temperature = 1}).item<double>(), 1e-9);
}

TEST(Distillation, RelationsOfSamples) {
  EXPECT_NEAR(rkd_distance_loss(narrow_features(), wide_features()).item<double>(), 0.012828718808078116, kClose);
  EXPECT_NEAR(rkd_angle_loss(narrow_features(), wide_features()).item<double>(), 0.0053255075283115665, kClose);
  const Tensor maps = wide_features().reshape({3, 3, 1, 1});
  EXPECT_NEAR(rkd_distance_loss(narrow_features(), maps).item<double>(), 0.012828718808078116, kClose);
}

TEST(Distillation, SureNetworksGiveNoInfinities) {
  const Tensor sure = torch::tensor({{300.0f, 0.0f, -300.0f}, {0.0f, 300.0f, 0.0f}});
  const Tensor wrong = (-sure).requires_grad_();
  const Tensor label = torch::tensor({0, 1}, torch::kLong);
  for (const Tensor& loss :
       {dml_loss(wrong, sure), kl_div_loss(wrong, sure), dkd_loss(wrong, sure, label), wsl_loss(wrong, sure, label),
        skd_loss(wrong, sure, label), dist_loss(wrong, sure), distillation_ce_loss(wrong, sure)}) {
    EXPECT_TRUE(std::isfinite(loss.item<double>())) << loss;
    EXPECT_TRUE(torch::autograd::grad({loss}, {wrong})[0].isfinite().all().item<bool>());
  }
}

TEST(Distillation, NoGradientReachesAFrozenTeacher) {
  const Tensor s = student().requires_grad_(), t = teacher();
  dml_loss(s, t).backward();
  EXPECT_TRUE(s.grad().defined());
  EXPECT_FALSE(t.grad().defined());
}

TEST(Distillation, GradientsAreTheirSlopes) {
  const Tensor t = teacher();
  using Mode = DistanceOptions::Mode;
  expect_gradient([&](const Tensor& s) { return distillation_ce_loss(s, t, {.epsilon = 0.1}); }, student());
  expect_gradient([&](const Tensor& s) { return dml_loss(s, t); }, student());
  expect_gradient([&](const Tensor& s) { return dml_loss(t, s); }, student());
  expect_gradient([&](const Tensor& s) { return distance_loss(s, t, {.mode = Mode::smooth_l1}); }, student());
  expect_gradient([&](const Tensor& s) { return kl_div_loss(s, t); }, student());
  expect_gradient([&](const Tensor& s) { return dkd_loss(s, t, classes(), {.temperature = 2, .beta = 8}); }, student());
  expect_gradient([&](const Tensor& s) { return skd_loss(s, t, classes(), {.temperature = 4}); }, student());
  expect_gradient([&](const Tensor& s) { return dist_loss(s, t); }, student());
  expect_gradient([&](const Tensor& s) { return rkd_distance_loss(s, wide_features()); }, narrow_features());
  expect_gradient([&](const Tensor& s) { return rkd_angle_loss(s, wide_features()); }, narrow_features());
}

TEST(Distillation, TheWeightOfWslCarriesNoGradient) {
  const Tensor s = student().requires_grad_();
  const Tensor gradient = torch::autograd::grad({wsl_loss(s, teacher(), classes())}, {s})[0];
  const auto entropy = [](const Tensor& z) { return -z.log_softmax(1).gather(1, classes().unsqueeze(1)).squeeze(1); };
  const Tensor weight = 1 - (-entropy(student()) / (entropy(teacher()) + 1e-7)).exp();
  // The slope of T^2 * w * H(p(t/T), p(s/T)) is T * w * (p(s/T) - p(t/T)).
  const Tensor slope = 2 * weight.unsqueeze(1) * ((student() / 2).softmax(1) - (teacher() / 2).softmax(1)) / 2;
  EXPECT_LT((gradient - slope).abs().max().item<double>(), 1e-9);
}

}  // namespace
}  // namespace trireme::nn
