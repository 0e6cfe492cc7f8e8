#include "trireme/optim/optimizers.h"

#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <string_view>

#include "trireme/core/test_support.h"
#include "trireme/core/test_variable.h"
#include "trireme/optim/test_devices.h"

namespace trireme::optim {
namespace {

using testing::HasSubstr;
using torch::Tensor;

constexpr int kSteps = 50;
constexpr double kClose = 1e-6;

/// Parameters of several shapes and memory orders, the same numbers in every type.
std::vector<Tensor> make_parameters(c10::ScalarType type, torch::Device device = torch::kCPU) {
  torch::manual_seed(3);
  std::vector<Tensor> all = {torch::randn({7, 5}), torch::randn({64}), torch::randn({1}),
                             torch::randn({4, 3, 3, 3}).to(torch::MemoryFormat::ChannelsLast),
                             torch::randn({8, 4, 1, 1}).to(torch::MemoryFormat::ChannelsLast)};
  for (Tensor& tensor : all) tensor = tensor.to(device, type).requires_grad_();
  return all;
}

/// Random gradients, the same numbers for equal `step` in every type; every third leaves out the second parameter.
void set_gradients(const std::vector<Tensor>& parameters, int step) {
  torch::manual_seed(1000 + step);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor grad = torch::randn(parameters[i].sizes()).to(parameters[i].options());  // contiguous
    parameters[i].mutable_grad() = i == 1 && step % 3 == 0 ? Tensor() : grad.detach();
  }
}

void expect_close(const std::vector<Tensor>& ours, const std::vector<Tensor>& theirs) {
  for (size_t i = 0; i < ours.size(); ++i)
    EXPECT_LT((ours[i] - theirs[i]).abs().max().item<double>(), kClose) << "parameter " << i;
}

/// Where 50 steps lead, on the CPU; the start and the gradients are the same for all devices, types and optimizers.
template <typename Optimizer, typename Options>
std::vector<Tensor> walk(torch::Device device, c10::ScalarType type, const Options& options) {
  std::vector<Tensor> parameters = make_parameters(type, device);
  Optimizer optimizer(parameters, options);
  for (int step = 0; step < kSteps; ++step) {
    set_gradients(parameters, step);
    optimizer.step();
  }
  for (Tensor& tensor : parameters) tensor = tensor.detach().cpu();
  return parameters;
}

template <typename Ours, typename Theirs, typename Options>
void expect_as_torch_on(torch::Device device, const Options& options) {
  for (const auto type : {torch::kFloat, torch::kDouble})
    expect_close(walk<Ours>(device, type, options), walk<Theirs>(torch::kCPU, type, options));
}

template <typename Ours, typename Theirs, typename Options>
void expect_as_torch(const Options& options) {
  for (const torch::Device device : devices()) expect_as_torch_on<Ours, Theirs>(device, options);
}

double farthest(const std::vector<Tensor>& from, const std::vector<Tensor>& to) {
  double most = 0;
  for (size_t i = 0; i < from.size(); ++i)
    most = std::max(most, (from[i].to(torch::kDouble) - to[i]).abs().max().item<double>());
  return most;
}

// --- ways to break it ----------------------------------------------------------------------------------------------

TEST(Optimizers, RefuseOptionsThatCannotBe) {
  const auto p = make_parameters(torch::kFloat);
  EXPECT_THAT(refusal([&] { SGD(p, {.lr = -1}); }), HasSubstr("lr -1"));
  EXPECT_THAT(refusal([&] { SGD(p, {.lr = 1, .nesterov = true}); }), HasSubstr("momentum above 0"));
  EXPECT_THAT(refusal([&] { Momentum(p, {.momentum = -0.5}); }), HasSubstr("momentum -0.5"));
  EXPECT_THAT(refusal([&] { Adam(p, {.beta1 = 1}); }), HasSubstr("optim::Adam: beta1 1"));
  EXPECT_THAT(refusal([&] { AdamW(p, {.weight_decay = -2}); }), HasSubstr("optim::AdamW: weight_decay -2"));
}

TEST(Optimizers, RefuseSparseGradientsAndParametersWithHoles) {
  const Tensor p = torch::ones({3, 2}).requires_grad_();
  SGD sgd({p}, {.lr = 1});
  p.mutable_grad() = torch::ones({3, 2}).to_sparse();
  EXPECT_THAT(refusal([&] { sgd.step(); }), HasSubstr("sparse"));
  const Tensor holes = torch::ones({3, 4}).narrow(1, 0, 2).requires_grad_();
  Adam adam({holes}, {.lr = 1});
  holes.mutable_grad() = torch::ones({3, 2});
  EXPECT_THAT(refusal([&] { adam.step(); }), HasSubstr("strides [4, 1]"));
}

TEST(Optimizers, ZeroGradBearsViewsIntoABucket) {
  const Tensor bucket = torch::ones({6});
  const Tensor p = torch::zeros({2, 2}).requires_grad_(), q = torch::zeros({2}).requires_grad_();
  p.mutable_grad() = bucket.narrow(0, 0, 4).view({2, 2});
  q.mutable_grad() = torch::ones({2});
  SGD sgd({p, q}, {.lr = 1});
  EXPECT_ANY_THROW(static_cast<torch::optim::Optimizer&>(sgd).zero_grad());  // why it is replaced
  sgd.zero_grad();
  EXPECT_TRUE(p.grad().is_view());
  EXPECT_TRUE(bucket.equal(torch::tensor({0.f, 0.f, 0.f, 0.f, 1.f, 1.f})));
  EXPECT_FALSE(q.grad().defined());
  q.mutable_grad() = torch::ones({2});
  const Tensor kept = q.grad();
  zero_grad(sgd, /*set_to_none=*/false);
  EXPECT_TRUE(q.grad().is_same(kept) && kept.eq(0).all().item<bool>());
}

TEST(Optimizers, WithoutGradientNothingMoves) {
  const auto p = make_parameters(torch::kFloat);
  const Tensor before = p[0].detach().clone();
  AdamW adam(p, {.lr = 1, .weight_decay = 0.5});
  adam.step();
  EXPECT_TRUE(p[0].equal(before));
  EXPECT_TRUE(adam.state().empty());
}

// --- as torch ------------------------------------------------------------------------------------------------------

TEST(Optimizers, SgdAsTorch) {
  using Options = torch::optim::SGDOptions;
  expect_as_torch<SGD, torch::optim::SGD>(Options(0.05));
  expect_as_torch<SGD, torch::optim::SGD>(Options(0.05).weight_decay(0.1));
  expect_as_torch<SGD, torch::optim::SGD>(Options(0.05).momentum(0.9).weight_decay(1e-2));
  expect_as_torch<SGD, torch::optim::SGD>(Options(0.05).momentum(0.9).dampening(0.3));
  expect_as_torch<SGD, torch::optim::SGD>(Options(0.05).momentum(0.9).nesterov(true).weight_decay(1e-2));
}

TEST(Optimizers, AdamAsTorch) {
  using Options = torch::optim::AdamOptions;
  expect_as_torch<Adam, torch::optim::Adam>(Options(0.01));
  expect_as_torch<Adam, torch::optim::Adam>(Options(0.01).weight_decay(0.1).betas({0.8, 0.95}));
  expect_as_torch<Adam, torch::optim::Adam>(Options(0.01).amsgrad(true));
}

TEST(Optimizers, AdamWAsTorch) {
  using Options = torch::optim::AdamWOptions;
  for (const Options& options : {Options(0.01), Options(0.01).weight_decay(0.3).amsgrad(true)})
    expect_as_torch_on<AdamW, torch::optim::AdamW>(torch::kCPU, options);
}

// On a GPU the fused kernel takes the decay off with less rounding than torch's 1 - lr * weight_decay: in float the two
// part by some 3e-6, ours the nearer to what double gives.
TEST(Optimizers, AdamWOnAGpuIsNearerToExactThanTorchs) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  using Options = torch::optim::AdamWOptions;
  for (const Options& options : {Options(0.01), Options(0.01).weight_decay(0.3).amsgrad(true)}) {
    const auto exact = walk<torch::optim::AdamW>(torch::kCPU, torch::kDouble, options);
    expect_close(walk<AdamW>(torch::kCUDA, torch::kDouble, options), exact);
    const double ours = farthest(walk<AdamW>(torch::kCUDA, torch::kFloat, options), exact);
    EXPECT_LE(ours, farthest(walk<torch::optim::AdamW>(torch::kCUDA, torch::kFloat, options), exact));
    EXPECT_LT(ours, 5e-6);
  }
}

/// How often f() runs one of libtorch's optimizers for all parameters at once.
int fused_steps(const std::function<void()>& f) {
  thread_local int count = 0;
  count = 0;
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
        count += std::string_view(function.name()).starts_with("aten::_fused_");
        return nullptr;
      }).scopes({at::RecordScope::FUNCTION}));
  f();
  at::removeCallback(handle);
  return count;
}

TEST(Optimizers, StepOneParameterAfterTheOtherWhenAskedTo) {
  const auto all = [] {
    expect_as_torch_on<SGD, torch::optim::SGD>(torch::kCPU, torch::optim::SGDOptions(0.01).momentum(0.9));
    expect_as_torch_on<Adam, torch::optim::Adam>(torch::kCPU, torch::optim::AdamOptions(0.01));
    expect_as_torch_on<AdamW, torch::optim::AdamW>(torch::kCPU, torch::optim::AdamWOptions(0.01));
  };
  EXPECT_GE(fused_steps(all), 3 * kSteps);
  const ScopedVariable variable("TRIREME_WITHOUT", "fused_optimizers");
  EXPECT_EQ(fused_steps(all), 0);
}

TEST(Optimizers, MomentumIsPaddles) {
  // v = mu v + g + l2 w;  w -= lr v  (or lr (g + l2 w + mu v) with Nesterov), by hand.
  for (const bool nesterov : {false, true}) {
    const Tensor p = torch::tensor({2.0}, torch::kDouble).requires_grad_();
    Momentum momentum({p}, {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.5, .use_nesterov = nesterov});
    double w = 2, v = 0;
    for (const double g : {1.0, -3.0, 0.5}) {
      p.mutable_grad() = torch::tensor({g}, torch::kDouble);
      momentum.step();
      const double slope = g + 0.5 * w;
      v = 0.9 * v + slope;
      w -= 0.1 * (nesterov ? slope + 0.9 * v : v);
      EXPECT_NEAR(p.item<double>(), w, 1e-12);
    }
  }
}

// Four steps on 0.5 a^2 + b^2 + 2 c^2, the rate halved after two; by paddle.optimizer.RMSProp of Paddle 3,
// which keeps its options as floats.
TEST(Optimizers, RmsPropIsPaddles) {
  const auto walk_rms = [](RmsPropOptions options) {
    const Tensor w = torch::tensor({1.0, -2.0, 0.5}, torch::kDouble).requires_grad_();
    const Tensor factors = torch::tensor({0.5, 1.0, 2.0}, torch::kDouble);
    options.rho = 0.9, options.epsilon = 1e-2;
    RMSProp rms({w}, options);
    for (int step = 0; step < 4; ++step) {
      set_lr(rms, step < 2 ? 0.1 : 0.05);
      (w * w * factors).sum().backward();
      rms.step();
      zero_grad(rms);
    }
    return w.detach();
  };
  const auto near = [](const Tensor& ours, const std::vector<double>& paddles) {
    EXPECT_TRUE(ours.allclose(torch::tensor(paddles, torch::kDouble), 0, 1e-6)) << ours;
  };
  near(walk_rms({}), {0.397640935, -1.319864511, 0.032977119});
  near(walk_rms({.momentum = 0.9, .weight_decay = 0.1}), {-0.571152489, -0.173984735, -0.656972851});
  near(walk_rms({.momentum = 0.5, .centered = true, .weight_decay = 0.1}), {-0.031101091, -0.774760317, -0.198566640});
  EXPECT_THAT(refusal([] { RMSProp({torch::ones({1})}, {.rho = 1}); }), HasSubstr("rho 1"));
}

/// Saves `from` after ten steps, loads it as `to`, and goes on with both.
template <typename From, typename To, typename Options>
void expect_interchangeable(const Options& options) {
  const std::vector<Tensor> a = make_parameters(torch::kFloat), b = make_parameters(torch::kFloat);
  From from(a, options);
  for (int step = 0; step < 10; ++step) set_gradients(a, step), from.step();
  std::stringstream file;
  torch::save(from, file);
  To to(b, options);
  torch::load(to, file);
  {
    torch::NoGradGuard no_grad;
    for (size_t i = 0; i < a.size(); ++i) b[i].copy_(a[i]);
  }
  for (int step = 10; step < 20; ++step) set_gradients(a, step), set_gradients(b, step), from.step(), to.step();
  expect_close(a, b);
}

TEST(Optimizers, StatesGoToTorchAndBack) {
  const auto sgd = torch::optim::SGDOptions(0.05).momentum(0.9);
  const auto adam = torch::optim::AdamOptions(0.01).amsgrad(true);
  const auto adamw = torch::optim::AdamWOptions(0.01);
  expect_interchangeable<SGD, torch::optim::SGD>(sgd);
  expect_interchangeable<torch::optim::SGD, SGD>(sgd);
  expect_interchangeable<Adam, torch::optim::Adam>(adam);
  expect_interchangeable<torch::optim::Adam, Adam>(adam);
  expect_interchangeable<AdamW, torch::optim::AdamW>(adamw);
  expect_interchangeable<torch::optim::AdamW, AdamW>(adamw);
}

TEST(Optimizers, StepCallsItsClosure) {
  const Tensor p = torch::ones({1}).requires_grad_();
  SGD sgd({p}, {.lr = 0.5});
  const Tensor loss = sgd.step([&] {
    const Tensor y = (3 * p).sum();
    y.backward();
    return y;
  });
  EXPECT_FLOAT_EQ(loss.item<float>(), 3);
  EXPECT_FLOAT_EQ(p.item<float>(), -0.5);
}

TEST(Optimizers, LearningRateOfAllGroups) {
  const Tensor p = torch::ones({1}).requires_grad_(), q = torch::ones({1}).requires_grad_();
  Adam adam(std::vector<ParamGroup>{{{p}, std::nullopt}, {{q}, 0.0}}, {.lr = 0.5});
  EXPECT_EQ(get_lr(adam), 0.5);
  set_lr(adam, 0);
  p.mutable_grad() = torch::ones({1});
  q.mutable_grad() = torch::ones({1});
  adam.step();
  EXPECT_EQ(p.item<float>() + q.item<float>(), 2);
}

// --- groups --------------------------------------------------------------------------------------------------------

struct MixedNet : torch::nn::Module {
  MixedNet() {
    conv = register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3)));
    bn = register_module("bn", torch::nn::BatchNorm2d(4));
    tail = register_module(
        "tail", torch::nn::Sequential(torch::nn::Linear(4, 2), torch::nn::LayerNorm(torch::nn::LayerNormOptions({2}))));
  }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d bn{nullptr};
  torch::nn::Sequential tail{nullptr};
};

size_t spared(const NoDecay& who) {
  const MixedNet net;
  const auto groups = decay_groups(net, who);
  return groups.size() == 2 ? groups[1].params.size() : 0;
}

TEST(DecayGroups, SpareWhoeverIsNamed) {
  EXPECT_EQ(spared({}), 0u);
  EXPECT_EQ(spared({.norm = true}), 4u);
  EXPECT_EQ(spared({.bias = true}), 4u);
  EXPECT_EQ(spared({.norm = true, .bias = true}), 6u);
  EXPECT_EQ(spared({.one_dim = true}), 6u);
  EXPECT_EQ(spared({.names = {"tail.0", "bn"}}), 4u);
}

TEST(DecayGroups, LeaveOutFrozenAndRepeatedParameters) {
  MixedNet net;
  net.conv->weight.set_requires_grad(false);
  net.register_module("again", net.bn);
  const auto groups = decay_groups(net, {.norm = true});
  EXPECT_EQ(groups[0].params.size(), 3u);  // conv.bias, tail.0.weight, tail.0.bias
  EXPECT_EQ(groups[1].params.size(), 4u);
}

TEST(DecayGroups, OnlyTheOthersShrink) {
  MixedNet net;
  Momentum momentum(decay_groups(net, {.norm = true}), {.lr = 0.1, .momentum = 0, .weight_decay = 0.5});
  const Tensor conv = net.conv->weight.detach().clone(), gamma = net.bn->weight.detach().clone();
  for (const Tensor& p : net.parameters()) p.mutable_grad() = torch::zeros_like(p);
  momentum.step();
  EXPECT_TRUE(net.conv->weight.allclose(conv * 0.95));
  EXPECT_TRUE(net.bn->weight.equal(gamma));
}

double factor_by_name(const std::string& name) {
  return name.starts_with("conv.") ? 0 : name.starts_with("tail.") ? 0.5 : 1;
}

TEST(DecayGroups, HaveTheirFactorsOfTheRate) {
  MixedNet net;
  const auto groups = decay_groups(net, {.norm = true}, factor_by_name);
  ASSERT_EQ(groups.size(), 4u);  // conv, tail.0; tail.1, bn
  Momentum momentum(groups, {.lr = 0.1, .momentum = 0});
  EXPECT_EQ(get_lr(momentum), 0.1);
  set_lr(momentum, 0.4);
  EXPECT_EQ(get_lr(momentum), 0.4);
  const Tensor conv = net.conv->weight.detach().clone(), gamma = net.bn->weight.detach().clone();
  const Tensor tail = net.tail->parameters()[0].detach().clone();
  for (const Tensor& p : net.parameters()) p.mutable_grad() = torch::ones_like(p);
  momentum.step();
  EXPECT_TRUE(net.conv->weight.equal(conv));
  EXPECT_TRUE(net.tail->parameters()[0].allclose(tail - 0.2));
  EXPECT_TRUE(net.bn->weight.allclose(gamma - 0.4));
  EXPECT_THROW(decay_groups(net, {}, [](const std::string&) { return -1.0; }), UsageError);
}

}  // namespace
}  // namespace trireme::optim
