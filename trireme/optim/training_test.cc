// What stands around an optimizer: clipping, averages, mixed precision.
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "trireme/core/test_support.h"
#include "trireme/optim/amp.h"
#include "trireme/optim/clip.h"
#include "trireme/optim/ema.h"
#include "trireme/optim/optimizers.h"
#include "trireme/optim/test_devices.h"

namespace trireme::optim {
namespace {

using testing::HasSubstr;
using torch::Tensor;

constexpr float kInf = std::numeric_limits<float>::infinity();

Tensor parameter(const Tensor& value, const Tensor& grad) {
  Tensor p = value.detach().clone().requires_grad_();
  p.mutable_grad() = grad.defined() ? grad.detach().clone() : Tensor();
  return p;
}

// --- clipping ------------------------------------------------------------------------------------------------------

TEST(Clip, ShortGradientsStayExactlyAsTheyAre) {
  const Tensor p = parameter(torch::zeros({2}), torch::tensor({3.f, 4.f}));
  EXPECT_FLOAT_EQ(clip_grad_norm({p, torch::ones({1}).requires_grad_()}, 5.0).item<float>(), 5);
  EXPECT_TRUE(p.grad().equal(torch::tensor({3.f, 4.f})));
  EXPECT_EQ(clip_grad_norm({torch::ones({1})}, 1).item<float>(), 0);
  EXPECT_THAT(refusal([&] { clip_grad_norm({p}, 0); }), HasSubstr("max_norm 0"));
}

TEST(Clip, LongOnesGetTheNormAsTorchClipsThem) {
  torch::manual_seed(1);
  for (const torch::Device device : devices()) {
    std::vector<Tensor> ours, theirs;
    for (const auto type : {torch::kFloat, torch::kDouble, torch::kFloat}) {
      const Tensor grad = 10 * torch::randn({5, 3}, type).to(device);
      ours.push_back(parameter(torch::zeros_like(grad), grad));
      theirs.push_back(parameter(torch::zeros_like(grad), grad));
    }
    const double norm = clip_grad_norm(ours, 2).item<double>();
    EXPECT_NEAR(norm, torch::nn::utils::clip_grad_norm_(theirs, 2), 1e-4);
    for (size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(ours[i].grad().allclose(theirs[i].grad(), 1e-5));
    EXPECT_NEAR(grad_norm(ours).item<double>(), 2, 1e-5);
  }
}

TEST(Clip, NormsOfHalfPrecisionDoNotOverflow) {
  const Tensor p = parameter(torch::zeros({4}, torch::kHalf), torch::full({4}, 30000, torch::kHalf));
  EXPECT_NEAR(clip_grad_norm({p}, 1).item<double>(), 60000, 10);
  EXPECT_NEAR(p.grad()[0].item<double>(), 0.5, 1e-3);
}

TEST(Clip, SaysWhenTheNormIsNotFinite) {
  const Tensor p = parameter(torch::zeros({2}), torch::tensor({kInf, 1.f}));
  EXPECT_THAT(refusal([&] { clip_grad_norm({p}, 1, {.error_if_nonfinite = true}); }), HasSubstr("is inf"));
  EXPECT_FALSE(std::isfinite(clip_grad_norm({p}, 1).item<double>()));
}

// --- averages ------------------------------------------------------------------------------------------------------

TEST(Ema, RefusesMisuse) {
  torch::nn::Linear net(2, 2);
  EXPECT_THAT(refusal([&] { Ema(*net, {.decay = 1.5}); }), HasSubstr("decay 1.5"));
  Ema ema(*net, {.decay = 0.5});
  EXPECT_THAT(refusal([&] { ema.load_state({{"weight", torch::zeros({2, 2})}}); }), HasSubstr("no 'bias'"));
  EXPECT_THAT(refusal([&] {
                ema.load_state({{"weight", torch::zeros({3, 2})}, {"bias", torch::zeros({2})}});
              }),
              HasSubstr("[3, 2] in the state and [2, 2]"));
  const auto averaged = ema.apply();
  EXPECT_THAT(refusal([&] { ema.update(); }), HasSubstr("while the averages are applied"));
  EXPECT_THAT(refusal([&] { ema.apply(); }), HasSubstr("already"));
}

TEST(Ema, AveragesParametersAndBuffersAndCopiesCounts) {
  torch::NoGradGuard no_grad;
  torch::nn::BatchNorm1d net(2);
  net->to(devices().back());
  Ema ema(*net, {.decay = 0.9});
  net->weight.fill_(11);
  net->running_mean.fill_(10);
  net->num_batches_tracked.fill_(7);
  ema.update();
  const Tensor weight = net->weight;
  {
    const auto averaged = ema.apply();
    EXPECT_NEAR(net->weight[0].item<double>(), 2, 1e-6);        // 0.9 * 1 + 0.1 * 11
    EXPECT_NEAR(net->running_mean[0].item<double>(), 1, 1e-6);  // 0.9 * 0 + 0.1 * 10
    EXPECT_EQ(net->num_batches_tracked.item<int64_t>(), 7);
    EXPECT_TRUE(net->weight.is_same(weight));  // the optimizer knows it by its address
  }
  EXPECT_EQ(net->weight[0].item<float>(), 11);
  ema.update();
  const auto averaged = ema.apply();
  EXPECT_NEAR(net->weight[0].item<double>(), 2.9, 1e-6);
}

TEST(Ema, ATensorWithTwoNamesGetsItsWeightsBack) {
  torch::nn::Module net;
  const Tensor tied = net.register_parameter("a", torch::ones({3}));
  net.register_parameter("b", tied);
  Ema ema(net, {.decay = 0.5});
  torch::NoGradGuard no_grad;
  tied.fill_(5);
  { const auto averaged = ema.apply(); }
  EXPECT_TRUE(tied.equal(torch::full({3}, 5.0))) << tied;
}

TEST(Ema, FollowsAParameterThatGetsOtherMemory) {
  const torch::NoGradGuard no_grad;
  torch::nn::Linear net(2, 1);
  net->weight.fill_(1);
  Ema ema(*net, {.decay = 0.5});
  net->weight.set_data(torch::full({1, 2}, 3.0f));
  ema.update();
  {
    const auto averaged = ema.apply();
    EXPECT_TRUE(net->weight.equal(torch::full({1, 2}, 2.0f))) << net->weight;
  }
  EXPECT_TRUE(net->weight.equal(torch::full({1, 2}, 3.0f))) << net->weight;
}

TEST(Ema, GoesOnFromItsState) {
  torch::NoGradGuard no_grad;
  torch::nn::Linear net(2, 1);
  Ema first(*net, {.decay = 0.5});
  net->weight.fill_(4);
  first.update();
  Ema second(*net, {.decay = 0.5});
  second.load_state(first.state());
  net->weight.fill_(8);
  first.update();
  second.update();
  EXPECT_TRUE(first.state()[0].second.equal(second.state()[0].second));
  EXPECT_EQ(first.state()[0].first, "weight");
}

TEST(Ema, AveragesOfHalfPrecisionAreKeptInFloat) {
  torch::NoGradGuard no_grad;
  torch::nn::Linear net(1, 1);
  net->to(torch::kBFloat16);
  net->weight.fill_(1);
  Ema ema(*net, {.decay = 0.999});
  net->weight.fill_(2);
  for (int i = 0; i < 10; ++i) ema.update();
  EXPECT_NEAR(ema.state()[0].second.item<double>(), 2 - std::pow(0.999, 10), 1e-5);
  { const auto averaged = ema.apply(); }
  EXPECT_NEAR(ema.state()[0].second.item<double>(), 2 - std::pow(0.999, 10), 1e-5);
}

// --- autocast ------------------------------------------------------------------------------------------------------

// Matrices this small do not go to oneDNN, whose bf16 kernels kill the process on some virtual machines.
c10::ScalarType product_type() {
  return torch::mm(torch::ones({2, 2}), torch::ones({2, 2})).scalar_type();
}

TEST(Autocast, IsOnInItsBlockOnly) {
  EXPECT_EQ(product_type(), torch::kFloat);
  {
    Autocast amp({.dtype = torch::kBFloat16});
    EXPECT_EQ(product_type(), torch::kBFloat16);
    {
      Autocast off({.enabled = false});
      EXPECT_EQ(product_type(), torch::kFloat);
    }
    EXPECT_EQ(product_type(), torch::kBFloat16);
    Autocast half({.dtype = torch::kHalf});
    EXPECT_EQ(product_type(), torch::kHalf);
  }
  EXPECT_EQ(product_type(), torch::kFloat);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(torch::kCPU));
}

TEST(Autocast, IsOfItsDevice) {
  Autocast amp({.device = torch::kCUDA, .dtype = torch::kHalf});
  EXPECT_EQ(product_type(), torch::kFloat);  // on the CPU
  if (!torch::cuda::is_available()) return;
  const Tensor x = torch::ones({2, 2}, torch::kCUDA);
  EXPECT_EQ(torch::mm(x, x).scalar_type(), torch::kHalf);
}

TEST(Autocast, EndsWithAnExceptionAndForgetsCasts) {
  const Tensor w = torch::ones({2, 2}).requires_grad_(), x = torch::ones({2, 2});
  EXPECT_ANY_THROW({
    Autocast amp({});
    EXPECT_EQ(torch::mm(x, w)[0][0].item<float>(), 2);
    throw std::runtime_error("in the block");
  });
  EXPECT_EQ(product_type(), torch::kFloat);
  w.detach().fill_(3);  // what an optimizer does
  Autocast amp({});
  EXPECT_EQ(torch::mm(x, w)[0][0].item<float>(), 6);  // 2 were the old cast
}

TEST(Autocast, RefusesOtherTypes) {
  EXPECT_THAT(refusal([] { Autocast amp({.dtype = torch::kFloat}); }), HasSubstr("Float is neither"));
  EXPECT_EQ(product_type(), torch::kFloat);
}

// --- loss scale ----------------------------------------------------------------------------------------------------

/// One parameter under SGD with lr 1: what it moved by is its gradient.
struct Scaled {
  explicit Scaled(GradScaler::Options options) : scaler(std::move(options)) {}

  bool step(float gradient) {
    p.mutable_grad().reset();
    scaler.scale((p * gradient).sum()).backward();
    const bool stepped = scaler.step(sgd);
    scaler.update();
    return stepped;
  }

  Tensor p = torch::zeros({1}, devices().back()).requires_grad_();
  SGD sgd{{p}, SgdOptions{.lr = 1}};
  GradScaler scaler;
};

TEST(GradScaler, RefusesTheWrongOrder) {
  Scaled net({});
  EXPECT_THAT(refusal([&] { net.scaler.update(); }), HasSubstr("before any step"));
  net.scaler.scale(net.p.sum()).backward();
  net.scaler.unscale_(net.sgd);
  EXPECT_THAT(refusal([&] { net.scaler.unscale_(net.sgd); }), HasSubstr("second time"));
  net.scaler.step(net.sgd);
  EXPECT_THAT(refusal([&] { net.scaler.step(net.sgd); }), HasSubstr("second time"));
  net.scaler.update();
  EXPECT_TRUE(net.step(1));
}

TEST(GradScaler, RefusesOptionsAndHalfGradients) {
  EXPECT_THAT(refusal([] { GradScaler({.init_scale = 0}); }), HasSubstr("init_scale 0"));
  EXPECT_THAT(refusal([] { GradScaler({.backoff = 2}); }), HasSubstr("backoff 2"));
  EXPECT_THAT(refusal([] { GradScaler({.growth_interval = 0}); }), HasSubstr("growth_interval 0"));
  const Tensor p = parameter(torch::ones({1}, torch::kHalf), torch::ones({1}, torch::kHalf));
  SGD sgd({p}, {.lr = 1});
  GradScaler scaler({});
  EXPECT_THAT(refusal([&] { scaler.step(sgd); }), HasSubstr("MasterWeights"));
}

TEST(GradScaler, TheScaleIsGoneFromTheStep) {
  Scaled net({.init_scale = 1024});
  EXPECT_TRUE(net.step(0.25));
  EXPECT_FLOAT_EQ(net.p.item<float>(), -0.25);
  EXPECT_EQ(net.p.grad().item<float>(), 0.25);
}

TEST(GradScaler, OverflowsAreLeftOutAndLowerTheScale) {
  Scaled net({.init_scale = 8, .growth_interval = 2});
  EXPECT_FALSE(net.step(kInf));
  EXPECT_FALSE(net.step(std::nanf("")));
  EXPECT_EQ(net.p.item<float>(), 0);
  EXPECT_EQ(net.scaler.current_scale(), 2);
  EXPECT_TRUE(net.step(1) && net.step(1));
  EXPECT_EQ(net.scaler.current_scale(), 4);
  EXPECT_FALSE(net.step(kInf) || net.step(kInf) || net.step(kInf) || net.step(kInf));
  EXPECT_EQ(net.scaler.current_scale(), 1);  // no lower
}

TEST(GradScaler, PaddlesCountOfOverflowsInARow) {
  Scaled net({.init_scale = 16, .growth_interval = 2, .backoff_every = 2});
  net.step(kInf);
  EXPECT_EQ(net.scaler.current_scale(), 16);
  net.step(1);  // breaks the row
  net.step(kInf);
  EXPECT_EQ(net.scaler.current_scale(), 16);
  net.step(kInf);
  EXPECT_EQ(net.scaler.current_scale(), 8);
}

TEST(GradScaler, AFixedScaleStays) {
  Scaled net({.init_scale = 128, .dynamic = false, .growth_interval = 1});
  EXPECT_TRUE(net.step(1));
  EXPECT_FALSE(net.step(kInf));
  EXPECT_EQ(net.scaler.current_scale(), 128);
}

TEST(GradScaler, DisabledItIsNotThere) {
  Scaled net({.enabled = false});
  EXPECT_TRUE(net.step(0.5));
  EXPECT_EQ(net.p.item<float>(), -0.5);
  EXPECT_EQ(net.scaler.current_scale(), 1);
}

TEST(GradScaler, AnotherRanksOverflowCountsHereToo) {
  bool other_overflows = true;
  int calls = 0;
  Scaled net({.init_scale = 8, .agree = [&](Tensor& found) {
                EXPECT_EQ(found.numel(), 1);
                ++calls;
                if (other_overflows) found.fill_(1);
              }});
  EXPECT_FALSE(net.step(1));
  EXPECT_EQ(net.scaler.current_scale(), 4);
  other_overflows = false;
  EXPECT_TRUE(net.step(1));
  EXPECT_EQ(calls, 2);
}

TEST(GradScaler, RanksWithoutGradientsAgreeToo) {
  int calls = 0;
  GradScaler scaler({.agree = [&](Tensor&) { ++calls; }});
  SGD sgd({torch::zeros({1}).requires_grad_()}, {.lr = 1});
  EXPECT_TRUE(scaler.step(sgd));
  EXPECT_EQ(calls, 1);
}

TEST(GradScaler, OneScaleForTwoOptimizers) {
  const Tensor p = parameter(torch::zeros({1}), torch::tensor({8.f})), q = parameter(p, torch::tensor({kInf}));
  SGD good({p}, {.lr = 1}), bad({q}, {.lr = 1});
  GradScaler scaler({.init_scale = 8});
  EXPECT_TRUE(scaler.step(good));
  EXPECT_FALSE(scaler.step(bad));
  scaler.update();
  EXPECT_EQ(p.item<float>(), -1);
  EXPECT_EQ(scaler.current_scale(), 4);
}

TEST(GradScaler, GoesOnFromItsText) {
  Scaled net({.init_scale = 8, .growth_interval = 3, .backoff_every = 2}), other({.growth_interval = 3});
  net.step(1), net.step(1);
  EXPECT_EQ(net.scaler.state_text(), "scaler 1 scale=8 good=2 bad=0");
  other.scaler.load_state(net.scaler.state_text());
  other.step(1);
  EXPECT_EQ(other.scaler.current_scale(), 16);
  EXPECT_THAT(refusal([&] { other.scaler.load_state("scaler 1 scale=x"); }), HasSubstr("scale=x"));
}

}  // namespace
}  // namespace trireme::optim
