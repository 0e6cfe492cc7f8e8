#include <gmock/gmock.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/test_variable.h"
#include "trireme/nn/batch_norm_state.h"
#include "trireme/nn/fused/batch_norm_act.h"
#include "trireme/nn/fused/inverted_residual.h"
#include "trireme/nn/fused/passes.h"
#include "trireme/nn/fused/threads.h"

namespace trireme::nn::fused {
namespace {

constexpr double kFloat = 5e-6;

struct Shape {
  int64_t in, wide, out, kernel, stride;
  bool expand, squeeze;
  Activation act;
  Activation project_act = Activation::none;
  Activation gate = Activation::hardsigmoid;
};

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(const Shape& s) : shortcut(s.stride == 1 && s.in == s.out) {
    if (s.expand) expand = register_module("expand", ConvBnAct({.in = s.in, .out = s.wide, .activation = s.act}));
    depthwise = register_module("depthwise", ConvBnAct({.in = s.wide,
                                                        .out = s.wide,
                                                        .kernel = s.kernel,
                                                        .stride = s.stride,
                                                        .groups = s.wide,
                                                        .activation = s.act}));
    if (s.squeeze)
      squeeze = register_module("squeeze", SqueezeExcite({.channels = s.wide, .squeeze = 4, .gate = s.gate}));
    project = register_module("project", ConvBnAct({.in = s.wide, .out = s.out, .activation = s.project_act}));
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) parameter.add_(torch::randn_like(parameter), 0.2);
  }
  InvertedResidual block() {
    return {expand ? expand.get() : nullptr, depthwise.get(), squeeze ? squeeze.get() : nullptr, project.get(),
            shortcut};
  }
  torch::Tensor layer_by_layer(const torch::Tensor& x) {
    torch::Tensor y = depthwise->forward(expand ? expand->forward(x) : x);
    if (squeeze) y = squeeze->forward(y);
    y = project->forward(y);
    return shortcut ? y + x : y;
  }
  bool shortcut;
  ConvBnAct expand{nullptr}, depthwise{nullptr}, project{nullptr};
  SqueezeExcite squeeze{nullptr};
};
TORCH_MODULE(Block);

torch::Tensor images(int64_t count, int64_t channels, int64_t size) {
  return torch::randn({count, channels, size, size}).contiguous(torch::MemoryFormat::ChannelsLast);
}

double distance(const torch::Tensor& a, const torch::Tensor& b) {
  return ((a.to(torch::kDouble) - b.to(torch::kDouble)).norm() / (b.to(torch::kDouble).norm() + 1e-30)).item<double>();
}

/// The same weights in double, where nothing is fused: the reference.
template <typename Module>
Module in_double(const Module& module, Module copy) {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < module->parameters().size(); ++i) copy->parameters()[i].copy_(module->parameters()[i]);
  copy->to(torch::kDouble);
  return copy;
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all = {
      {16, 16, 16, 3, 2, false, true, Activation::relu},
      {16, 72, 24, 3, 2, true, false, Activation::relu},
      {24, 88, 24, 3, 1, true, false, Activation::relu},
      {24, 96, 40, 5, 2, true, true, Activation::hardswish},
      {40, 240, 40, 5, 1, true, true, Activation::hardswish, Activation::none, Activation::hardsigmoid_fifth},
      {16, 16, 32, 3, 1, false, false, Activation::hardswish, Activation::hardswish},
      {6, 6, 6, 5, 1, false, false, Activation::relu},
      {7, 11, 5, 3, 2, true, true, Activation::none},
  };
  return all;
}

TEST(InvertedResidual, EqualsItsLayersInDouble) {
  torch::manual_seed(1);
  for (size_t i = 0; i < shapes().size(); ++i) {
    SCOPED_TRACE(i);
    Block fused(shapes()[i]);
    Block plain = in_double(fused, Block(shapes()[i]));
    const torch::Tensor x = images(3, shapes()[i].in, 9).requires_grad_();
    const torch::Tensor wide = x.detach().to(torch::kDouble).requires_grad_();
    ASSERT_TRUE(can_fuse(fused->block(), x));
    ASSERT_FALSE(can_fuse(plain->block(), wide));
    const torch::Tensor y = inverted_residual(fused->block(), x);
    const torch::Tensor expected = plain->layer_by_layer(wide);
    EXPECT_LT(distance(y, expected), kFloat);
    const torch::Tensor weights = torch::randn_like(y);
    (y * weights).sum().backward();
    (expected * weights.to(torch::kDouble)).sum().backward();
    EXPECT_LT(distance(x.grad(), wide.grad()), kFloat);
    const auto references = plain->named_parameters();
    for (const auto& item : fused->named_parameters())
      EXPECT_LT(distance(item.value().grad(), references[item.key()].grad()), kFloat) << item.key();
    const auto buffers = plain->named_buffers();
    for (const auto& item : fused->named_buffers())
      EXPECT_LT(distance(item.value(), buffers[item.key()]), kFloat) << item.key();
  }
}

/// One image of `channels`, channels last, whose stride from image to image says nothing.
torch::Tensor one_image(int64_t channels, int64_t size) {
  torch::Tensor x = torch::randn({size, size, channels}).permute({2, 0, 1}).unsqueeze(0);
  EXPECT_LT(x.stride(0), x.numel());
  EXPECT_TRUE(x.is_contiguous(torch::MemoryFormat::ChannelsLast));
  return x;
}

// Both an image that fits the caches, and one that is written past them.
TEST(InvertedResidual, TakesOneImageOfAnyStride) {
  torch::manual_seed(1);
  for (const int64_t size : {9, 372})
    for (const size_t shape : {0, 3, 5}) {
      SCOPED_TRACE(size * 10 + static_cast<int64_t>(shape));
      Block block(shapes()[shape]);
      const torch::Tensor x = one_image(shapes()[shape].in, size).requires_grad_();
      const torch::Tensor same =
          torch::empty_like(x, torch::MemoryFormat::ChannelsLast).copy_(x.detach()).requires_grad_();
      ASSERT_EQ(same.stride(0), same.numel());
      ASSERT_TRUE(can_fuse(block->block(), x));
      const torch::Tensor y = inverted_residual(block->block(), x), expected = inverted_residual(block->block(), same);
      EXPECT_TRUE(torch::equal(y, expected));
      EXPECT_TRUE(torch::equal(torch::autograd::grad({y.pow(2).sum()}, {x})[0],
                               torch::autograd::grad({expected.pow(2).sum()}, {same})[0]));
    }
}

TEST(InvertedResidual, IsTheSameOnAnyNumberOfThreads) {
  torch::manual_seed(1);
  Block block(shapes()[3]);
  const torch::Tensor x = images(20, 24, 9).requires_grad_();
  std::vector<torch::Tensor> first;
  const int before = torch::get_num_threads();
  for (const int threads : {1, 2, 3}) {
    torch::set_num_threads(threads);
    block->zero_grad();
    const torch::Tensor y = inverted_residual(block->block(), x);
    y.pow(2).sum().backward();
    std::vector<torch::Tensor> all = {y.detach()};
    for (const auto& parameter : block->parameters()) all.push_back(parameter.grad().clone());
    if (first.empty()) first = all;
    for (size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(torch::equal(all[i], first[i])) << threads << " " << i;
  }
  torch::set_num_threads(before);
}

struct NoPeers : NormPeers {
  torch::Tensor join(const torch::Tensor& moments) const override { return moments; }
  torch::Tensor sum(const torch::Tensor& sums) const override { return sums; }
};

TEST(InvertedResidual, IsNotFusedWhereTheLayersWouldDoSomethingElse) {
  Block block(shapes()[1]);
  const torch::Tensor x = images(2, 16, 8);
  EXPECT_TRUE(can_fuse(block->block(), x));
  EXPECT_FALSE(can_fuse(block->block(), x.contiguous()));
  EXPECT_FALSE(can_fuse(block->block(), x.to(torch::kDouble)));
  {
    const torch::NoGradGuard no_grad;
    EXPECT_FALSE(can_fuse(block->block(), x));
  }
  block->eval();
  EXPECT_FALSE(can_fuse(block->block(), x));
  block->train();
  torch::nn::BatchNorm2d(block->depthwise->bn())->eval();  // frozen statistics
  EXPECT_FALSE(can_fuse(block->block(), x));
  block->train();
  set_find_norm_peers(
      [](const torch::Tensor&) -> std::shared_ptr<const NormPeers> { return std::make_shared<NoPeers>(); });
  EXPECT_FALSE(can_fuse(block->block(), x));
  set_find_norm_peers(nullptr);
  Block bent(Shape{8, 8, 8, 3, 1, false, true, Activation::relu, Activation::none, Activation::sigmoid});
  EXPECT_FALSE(can_fuse(bent->block(), images(2, 8, 8)));
  EXPECT_FALSE(can_fuse(block->block(), images(2, 17, 8))) << "channels that do not fit";
}

TEST(InvertedResidual, IsSwitchedOffByAVariable) {
  Block block(shapes()[1]);
  const torch::Tensor x = images(2, 16, 8);
  const torch::nn::BatchNorm2d norm(16);
  EXPECT_TRUE(can_fuse(block->block(), x));
  {
    const ScopedVariable variable("TRIREME_WITHOUT", "blocks");
    EXPECT_FALSE(can_fuse(block->block(), x));
    EXPECT_TRUE(can_fuse(*norm, x, Activation::relu, {})) << "normalisations stay fused";
  }
  const ScopedVariable variable("TRIREME_FUSED", "0");
  EXPECT_FALSE(can_fuse(block->block(), x));
  EXPECT_FALSE(can_fuse(*norm, x, Activation::relu, {}));
}

TEST(StreamingStores, AreSwitchedOffByAVariableAndChangeNoBit) {
  const torch::Tensor small = torch::empty({1 << 10}), x = images(3, 64, 128);
  EXPECT_FALSE(is_streamed(small));
  EXPECT_TRUE(is_streamed(x));
  const torch::nn::BatchNorm2d norm(64);
  const torch::Tensor streamed = batch_norm_act(*norm, x, Activation::relu, {});
  const ScopedVariable variable("TRIREME_WITHOUT", "streaming_stores");
  EXPECT_FALSE(is_streamed(x));
  EXPECT_TRUE(torch::equal(streamed, batch_norm_act(*norm, x, Activation::relu, {})));
}

TEST(InvertedResidual, IsNotFusedForShortcutsAndPaddingsThatItDoesNotKnow) {
  const Shape shape{8, 8, 8, 3, 1, false, false, Activation::relu};
  const torch::Tensor x = images(2, 8, 8);
  Block fine(shape);
  EXPECT_TRUE(can_fuse(fine->block(), x));
  Block active(Shape{8, 8, 8, 3, 1, false, false, Activation::relu, Activation::relu});
  EXPECT_FALSE(can_fuse(active->block(), x)) << "an activation before the shortcut";
  Block wider(Shape{8, 8, 12, 3, 1, false, false, Activation::relu});
  InvertedResidual crossing = wider->block();
  crossing.shortcut = true;
  EXPECT_FALSE(can_fuse(crossing, x)) << "a shortcut to other channels";
  Block strided(Shape{8, 8, 8, 3, 2, false, false, Activation::relu});
  InvertedResidual shrinking = strided->block();
  shrinking.shortcut = true;
  EXPECT_FALSE(can_fuse(shrinking, x)) << "a shortcut to another size";
  ConvBnAct valid(ConvBnActOptions{.in = 8, .out = 8, .kernel = 3, .groups = 8, .padding = 0});
  InvertedResidual unpadded = fine->block();
  unpadded.depthwise = valid.get();
  EXPECT_FALSE(can_fuse(unpadded, x)) << "no padding";
}

TEST(InvertedResidual, HasNoSecondDerivative) {
  Block block(shapes()[1]);
  const torch::Tensor x = images(2, 16, 8).requires_grad_();
  const torch::Tensor y = inverted_residual(block->block(), x).sum();
  EXPECT_THROW(torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true), UsageError);
}

TEST(InvertedResidual, LeavesRunningStatisticsWhenTheyHaveHadTheirUpdate) {
  Block block(shapes()[1]);
  const torch::Tensor before = block->project->bn()->running_var.clone();
  {
    const RunningStatisticsStay stay;
    inverted_residual(block->block(), images(2, 16, 8));
  }
  EXPECT_TRUE(torch::equal(before, block->project->bn()->running_var));
  inverted_residual(block->block(), images(2, 16, 8));
  EXPECT_FALSE(torch::equal(before, block->project->bn()->running_var));
  EXPECT_EQ(2, block->project->bn()->num_batches_tracked.item<int64_t>());
}

// Two pieces of work that wait for each other end only when two threads are at work.
TEST(OnThreads, RunsOnSeveralAtATime) {
  const int before = torch::get_num_threads();
  torch::set_num_threads(2);
  std::atomic<int> arrived = 0;
  std::atomic<bool> together = true;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  on_threads(2, [&](int64_t) {
    ++arrived;
    while (arrived < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    if (arrived < 2) together = false;
  });
  EXPECT_TRUE(together);
  torch::set_num_threads(before);
}

TEST(OnThreads, DoesEachPieceOnceAndThrowsWhatOneThrows) {
  for (const int64_t count : {0, 1, 2, 100}) {
    std::vector<std::atomic<int>> done(static_cast<size_t>(count));
    on_threads(count, [&](int64_t i) { ++done[static_cast<size_t>(i)]; });
    for (const std::atomic<int>& one : done) EXPECT_EQ(1, one);
  }
  EXPECT_THROW(on_threads(8,
                          [](int64_t i) {
                            if (i == 5) throw UsageError("the sixth");
                          }),
               UsageError);
}

TEST(BatchNormAct, EqualsItsLayersInDouble) {
  torch::manual_seed(2);
  for (const Activation act :
       {Activation::none, Activation::relu, Activation::relu6, Activation::hardswish, Activation::silu})
    for (const bool adds : {false, true}) {
      SCOPED_TRACE(static_cast<int>(act));
      torch::nn::BatchNorm2d norm(24);
      torch::nn::BatchNorm2d plain = in_double(norm, torch::nn::BatchNorm2d(24));
      const torch::Tensor x = images(5, 24, 7).requires_grad_();
      const torch::Tensor residual = adds ? images(5, 24, 7).requires_grad_() : torch::Tensor();
      const torch::Tensor wide = x.detach().to(torch::kDouble).requires_grad_();
      const torch::Tensor wide_residual =
          adds ? residual.detach().to(torch::kDouble).requires_grad_() : torch::Tensor();
      ASSERT_TRUE(can_fuse_input(x) && can_fuse_norm(*norm, act));
      const torch::Tensor y = batch_norm_act(*norm, x, act, residual);
      const torch::Tensor z = plain->forward(wide);
      const torch::Tensor expected = activate(adds ? z + wide_residual : z, act);
      const torch::Tensor weights = torch::randn_like(y);
      (y * weights).sum().backward();
      (expected * weights.to(torch::kDouble)).sum().backward();
      EXPECT_LT(distance(y, expected), kFloat);
      EXPECT_LT(distance(x.grad(), wide.grad()), kFloat);
      if (adds) {
        EXPECT_LT(distance(residual.grad(), wide_residual.grad()), kFloat);
      }
      EXPECT_LT(distance(norm->weight.grad(), plain->weight.grad()), kFloat);
      EXPECT_LT(distance(norm->bias.grad(), plain->bias.grad()), kFloat);
      EXPECT_LT(distance(norm->running_mean, plain->running_mean), kFloat);
      EXPECT_LT(distance(norm->running_var, plain->running_var), kFloat);
    }
}

// A number that is not one must reach the loss, where it is noticed.
TEST(BatchNormAct, PassesNanOn) {
  for (const Activation act :
       {Activation::none, Activation::relu, Activation::relu6, Activation::hardswish, Activation::silu}) {
    torch::nn::BatchNorm2d norm(24);
    torch::Tensor x = images(4, 24, 5);
    x[1][3][2][2] = std::numeric_limits<float>::quiet_NaN();
    x.requires_grad_();
    const torch::Tensor y = batch_norm_act(*norm, x, act, {});
    EXPECT_TRUE(y.select(1, 3).isnan().all().item<bool>()) << static_cast<int>(act);
    EXPECT_FALSE(y.select(1, 4).isnan().any().item<bool>());
    y.sum().backward();
    EXPECT_TRUE(x.grad().select(1, 3).isnan().all().item<bool>()) << static_cast<int>(act);
  }
}

TEST(BatchNormAct, KeepsAVarianceThatIsSmallBesideTheMean) {
  torch::manual_seed(3);
  torch::nn::BatchNorm2d norm(24);
  torch::nn::BatchNorm2d plain = in_double(norm, torch::nn::BatchNorm2d(24));
  const torch::Tensor x = (images(8, 24, 7) + 1e4).contiguous(torch::MemoryFormat::ChannelsLast);
  const torch::Tensor y = batch_norm_act(*norm, x, Activation::none, {});
  EXPECT_LT(distance(y, plain->forward(x.to(torch::kDouble))), 2e-3);  // of which x itself has 1e-3: float at 1e4
  EXPECT_LT(distance(norm->running_var, plain->running_var), 1e-5);
}

TEST(ConvBnUnit, AddsWhatIsBroadcastAsItsLayersDo) {
  ConvBnAct unit(ConvBnActOptions{.in = 4, .out = 8, .kernel = 3});
  const torch::Tensor x = images(2, 4, 6), shift = torch::randn({2, 8, 1, 1});
  const torch::Tensor y = unit->forward_adding(x, shift);
  const torch::Tensor expected =
      torch::relu(torch::nn::BatchNorm2d(unit->bn())->forward(torch::nn::Conv2d(unit->conv())->forward(x)) + shift);
  EXPECT_LT(distance(y, expected), kFloat);
}

struct CountingPeers : NoPeers {
  torch::Tensor join(const torch::Tensor& moments) const override { return ++joins, moments; }
  torch::Tensor sum(const torch::Tensor& values) const override { return ++sums, values; }
  mutable int joins = 0, sums = 0;
};

TEST(BatchNormAct, ExchangesOnceInEachDirection) {
  static const auto peers = std::make_shared<CountingPeers>();
  torch::manual_seed(5);
  ConvBnAct unit(ConvBnActOptions{.in = 4, .out = 8, .kernel = 3});
  const torch::Tensor x = images(2, 4, 6);
  const torch::Tensor expected = unit->forward(x);
  set_find_norm_peers([](const torch::Tensor&) -> std::shared_ptr<const NormPeers> { return peers; });
  const torch::Tensor y = unit->forward(x);
  set_find_norm_peers(nullptr);
  EXPECT_EQ(1, peers->joins);
  EXPECT_TRUE(torch::equal(y, expected));
  y.sum().backward();
  EXPECT_EQ(1, peers->sums);
}

TEST(BatchNormAct, IsNotFusedForActivationsItDoesNotKnow) {
  torch::nn::BatchNorm2d norm(4);
  EXPECT_TRUE(can_fuse_norm(*norm, Activation::none));
  EXPECT_FALSE(can_fuse_norm(*norm, Activation::sigmoid));
}

}  // namespace
}  // namespace trireme::nn::fused
