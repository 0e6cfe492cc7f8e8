// Steps as a CUDA graph against the same steps one operator after the other. Needs a GPU.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "trireme/core/log.h"
#include "trireme/optim/optimizers.h"
#include "trireme/train/step.h"

namespace trireme::train {
namespace {

const torch::Device kGpu(torch::kCUDA, 0);

struct SmallImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(bn(conv(x)));
    x = torch::dropout(torch::adaptive_avg_pool2d(x, {2, 2}).flatten(1), 0.3, is_training());
    if (change == Change::scale) x = x * (1.0 + 0.5 * calls++);
    if (change == Change::weight) x = x * torch::tensor(1.0 + 0.5 * calls++);  // on the CPU
    if (change == Change::read) x = x + 0 * x.sum().item<float>();
    return fc(x);
  }
  enum class Change { nothing, scale, weight, read };
  Change change = Change::nothing;
  int calls = 0;
  torch::nn::Conv2d conv{register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 16, 3).bias(false)))};
  torch::nn::BatchNorm2d bn{register_module("bn", torch::nn::BatchNorm2d(16))};
  torch::nn::Linear fc{register_module("fc", torch::nn::Linear(64, 5))};
};
TORCH_MODULE(Small);

class StepGraphTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no NVIDIA GPU here";
    at::globalContext().setDeterministicCuDNN(true);
    at::globalContext().setBenchmarkCuDNN(false);
    set_log_sink([this](LogLevel, std::string_view line) { lines_.emplace_back(line); });
  }
  void TearDown() override { set_log_sink({}); }

  bool said(const std::string& part) const {
    for (const std::string& line : lines_)
      if (line.find(part) != line.npos) return true;
    return false;
  }

  Small net() const {
    torch::manual_seed(5);
    Small result;
    result->to(kGpu);
    return result;
  }
  static std::pair<torch::Tensor, torch::Tensor> batch(int64_t number, int64_t size = 8) {
    torch::manual_seed(100 + static_cast<uint64_t>(number));
    return {torch::randn({size, 3, 10, 10}).to(kGpu), torch::randint(0, 5, {size}).to(kGpu)};
  }
  /// What `steps` steps leave of the weights, and the losses.
  std::vector<torch::Tensor> train(StepOptions options, bool graph, int steps = 12,
                                   const std::function<void(int, Small&, optim::Momentum&)>& before = {},
                                   SmallImpl::Change change = SmallImpl::Change::nothing) {
    Small small = net();
    small->change = change;
    optim::Momentum sgd(small->parameters(), {.lr = 0.1});
    options.loss = torch::nn::CrossEntropyLoss();
    options.graph = graph;
    Step step(small, sgd, options);
    std::vector<torch::Tensor> result;
    for (int i = 0; i < steps; ++i) {
      if (before) before(i, small, sgd);
      const auto [x, y] = batch(i, i == 7 ? 3 : 8);
      torch::manual_seed(static_cast<uint64_t>(i));
      result.push_back(step(x, y));
      result.push_back(step.output());
    }
    for (const auto& parameter : small->parameters()) result.push_back(parameter.detach().clone());
    for (const auto& buffer : small->buffers()) result.push_back(buffer.clone());
    return result;
  }
  static void expect_same(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::equal(a[i], b[i])) << i;
  }

  std::vector<std::string> lines_;
};

TEST_F(StepGraphTest, TrainsToTheSameBits) {
  expect_same(train({}, true), train({}, false));
  EXPECT_TRUE(said("run as a CUDA graph"));
}

TEST_F(StepGraphTest, InEveryPrecisionWithClippingAndAverages) {
  for (const auto type : {torch::kBFloat16, torch::kHalf}) {
    const StepOptions options{.amp = {.level = AmpLevel::O1, .dtype = type}, .clip_norm = 0.5, .ema_decay = 0.9};
    expect_same(train(options, true), train(options, false));
  }
  EXPECT_FALSE(said("no CUDA graph"));
}

TEST_F(StepGraphTest, FollowsRatesWeightsAndModes) {
  const auto before = [](int i, Small& small, optim::Momentum& sgd) {
    optim::set_lr(sgd, 0.1 / (i + 1));
    const torch::NoGradGuard no_grad;
    if (i == 6) small->fc->weight.mul_(2);                              // as load_into() does
    if (i == 8) small->fc->weight.set_data(small->fc->weight.clone());  // another place in memory
    if (i == 9) small->conv->weight.set_requires_grad(false);
  };
  expect_same(train({}, true, 20, before), train({}, false, 20, before));
}

TEST_F(StepGraphTest, AForwardThatCountsIsNotRecorded) {
  using Change = SmallImpl::Change;
  for (const auto change : {Change::scale, Change::weight}) {
    lines_.clear();
    expect_same(train({}, true, 8, {}, change), train({}, false, 8, {}, change));
    EXPECT_TRUE(said("no CUDA graph: forward() calls other operators, or gives them other numbers"));
  }
}

TEST_F(StepGraphTest, AForwardThatWaitsIsNotRecordedAndTrainsOn) {
  using Change = SmallImpl::Change;
  expect_same(train({}, true, 8, {}, Change::read), train({}, false, 8, {}, Change::read));
  EXPECT_TRUE(said("no CUDA graph: forward(), the loss or their gradients wait for the GPU"));
}

}  // namespace
}  // namespace trireme::train
