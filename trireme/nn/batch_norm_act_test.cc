#include "trireme/nn/batch_norm_act.h"

#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/test_support.h"

namespace trireme::nn {
namespace {

using ::testing::HasSubstr;
using torch::nn::BatchNorm2d;
using torch::nn::BatchNorm2dOptions;
using torch::nn::Conv2d;
using torch::nn::Conv2dOptions;
using torch::nn::ReLU;
using torch::nn::ReLU6;
using torch::nn::Sequential;
using torch::nn::SiLU;

/// How often f() runs the fused operator.
int fused_calls(const std::function<void()>& f) {
  thread_local int count = 0;
  count = 0;
  const auto handle = at::addGlobalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
        count += function.name() == std::string("trireme::batch_norm_act");
        return nullptr;
      }).scopes({at::RecordScope::FUNCTION}));
  f();
  at::removeCallback(handle);
  return count;
}

double distance(const torch::Tensor& a, const torch::Tensor& b) {
  const torch::Tensor wide = b.detach().to(torch::kDouble);
  return ((a.detach().to(torch::kDouble) - wide).norm() / (wide.norm() + 1e-30)).item<double>();
}

torch::Tensor images(int64_t channels, torch::ScalarType type = torch::kFloat) {
  return torch::randn({4, channels, 6, 6}).to(type).contiguous(torch::MemoryFormat::ChannelsLast);
}

Conv2d convolution(int64_t in, int64_t out) {
  return Conv2d(Conv2dOptions(in, out, 3).padding(1).bias(false));
}

/// A residual block with Sequentials inside, of libtorch's layers alone.
struct BlockImpl : torch::nn::Module {
  BlockImpl() {
    register_module("body", body);
    register_module("end", end);
  }
  torch::Tensor forward(const torch::Tensor& x) { return end->forward(body->forward(x).relu() + x); }

  Sequential body{{{"conv1", convolution(8, 8)},
                   {"bn1", BatchNorm2d(8)},
                   {"relu1", ReLU(torch::nn::ReLUOptions(true))},
                   {"conv2", convolution(8, 8)},
                   {"bn2", BatchNorm2d(8)}}};
  Sequential end{BatchNorm2d(BatchNorm2dOptions(8).eps(1e-3).momentum(0.3)), SiLU()};
};
TORCH_MODULE(Block);

Sequential network() {
  return Sequential(convolution(3, 8), BatchNorm2d(8), ReLU(), Block(), convolution(8, 8), BatchNorm2d(8), ReLU6(),
                    torch::nn::AdaptiveAvgPool2d(2), torch::nn::Flatten(), torch::nn::Linear(32, 5));
}
constexpr int kNorms = 5;

std::string saved(const Sequential& net) {
  std::ostringstream stream;
  torch::save(net, stream);
  return stream.str();
}

void load(Sequential& net, const std::string& bytes) {
  std::istringstream stream(bytes);
  torch::load(net, stream);
}

std::vector<std::string> names(const torch::nn::Module& module) {
  std::vector<std::string> all = module.named_parameters().keys();
  const std::vector<std::string> buffers = module.named_buffers().keys(), layers = module.named_modules().keys();
  all.insert(all.end(), buffers.begin(), buffers.end());
  all.insert(all.end(), layers.begin(), layers.end());
  return all;
}

/// Outputs, gradients and statistics of two steps of training, and the output of an evaluation.
std::vector<torch::Tensor> results(Sequential& net, const torch::Tensor& x) {
  std::vector<torch::Tensor> all;
  net->train();
  for (int step = 0; step < 2; ++step) {
    const torch::Tensor y = net->forward(x);
    y.pow(2).sum().backward();
    all.push_back(y);
  }
  for (const torch::Tensor& parameter : net->parameters()) all.push_back(parameter.grad());
  for (const torch::Tensor& buffer : net->buffers()) all.push_back(buffer);
  net->eval();
  all.push_back(net->forward(x));
  return all;
}

void expect_near(const std::vector<torch::Tensor>& values, const std::vector<torch::Tensor>& expected,
                 double tolerance) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_LT(distance(values[i], expected[i]), tolerance) << i;
}

TEST(ConvertBatchNormAct, GivesTheResultsOfTheLayers) {
  torch::manual_seed(1);
  for (const auto type : {torch::kFloat, torch::kDouble}) {
    Sequential plain = network(), converted = network();
    plain->to(type);
    converted->to(type);
    EXPECT_EQ(kNorms, convert_batch_norm_act(*converted));
    load(converted, saved(plain));
    const torch::Tensor x = images(3, type);
    std::vector<torch::Tensor> values;
    EXPECT_EQ(type == torch::kFloat ? 2 * kNorms : 0, fused_calls([&] { values = results(converted, x); }));
    expect_near(values, results(plain, x), type == torch::kFloat ? 1e-5 : 1e-12);
  }
}

TEST(ConvertBatchNormAct, KeepsNamesAndCheckpoints) {
  Sequential plain = network(), converted = network();
  convert_batch_norm_act(*converted);
  EXPECT_EQ(names(*plain), names(*converted));
  results(converted, images(3));
  load(plain, saved(converted));
  const auto expected = converted->named_parameters(), buffers = converted->named_buffers();
  for (const auto& item : plain->named_parameters()) EXPECT_TRUE(torch::equal(item.value(), expected[item.key()]));
  for (const auto& item : plain->named_buffers()) EXPECT_TRUE(torch::equal(item.value(), buffers[item.key()]));
}

TEST(ConvertBatchNormAct, ASecondCallChangesNothing) {
  Sequential net = network();
  const auto second = std::make_shared<torch::nn::ModuleListImpl>();
  second->push_back(net.ptr());
  second->push_back(net.ptr());
  EXPECT_EQ(kNorms, convert_batch_norm_act(*net));
  EXPECT_EQ(kNorms, convert_batch_norm_act(*second));
  EXPECT_EQ(kNorms, fused_calls([&] { net->forward(images(3)); }));
}

TEST(ConvertBatchNormAct, LayersThatAreUsedTwiceAreThoseOfTheUser) {
  torch::manual_seed(2);
  BatchNorm2d shared(8), copy(8);
  ReLU relu;
  Sequential net(shared, relu, shared, relu), plain(copy, ReLU(), copy, ReLU());
  EXPECT_EQ(2, convert_batch_norm_act(*net));
  const torch::Tensor x = images(8);
  expect_near(results(net, x), results(plain, x), 1e-5);
  EXPECT_EQ(4, shared->num_batches_tracked.item<int64_t>());
}

Sequential pair(const BatchNorm2dOptions& options) {
  BatchNorm2d norm(options);
  return Sequential(norm, ReLU());
}

/// Runs x through a converted pair and through the same layers, and expects the same bits, layer by layer.
void expect_layer_by_layer(const BatchNorm2dOptions& options, const torch::Tensor& x,
                           const std::function<void(torch::nn::Module&)>& prepare = {}) {
  Sequential plain = pair(options), converted = pair(options);
  convert_batch_norm_act(*converted);
  if (prepare) prepare(*plain);
  if (prepare) prepare(*converted);
  torch::Tensor y;
  EXPECT_EQ(0, fused_calls([&] { y = converted->forward(x); }));
  EXPECT_TRUE(torch::equal(y, plain->forward(x)));
  const auto buffers = converted->buffers();
  for (size_t i = 0; i < buffers.size(); ++i) EXPECT_TRUE(torch::equal(buffers[i], plain->buffers()[i])) << i;
}

TEST(ConvertBatchNormAct, RunsLayerByLayerWhereTheKernelsDoSomethingElse) {
  const torch::Tensor x = images(8);
  expect_layer_by_layer(BatchNorm2dOptions(8).track_running_stats(false), x);
  expect_layer_by_layer(BatchNorm2dOptions(8).affine(false), x);
  expect_layer_by_layer(BatchNorm2dOptions(8).momentum(std::nullopt), x);
  expect_layer_by_layer(8, x.contiguous());
  expect_layer_by_layer(8, x.to(torch::kBFloat16), [](torch::nn::Module& net) { net.to(torch::kBFloat16); });
  expect_layer_by_layer(8, x, [](torch::nn::Module& net) { net.children()[0]->eval(); });
  {
    const torch::NoGradGuard no_grad;
    expect_layer_by_layer(8, x);
  }
  at::autocast::set_autocast_enabled(at::kCPU, true);
  expect_layer_by_layer(8, x);
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

TEST(ConvertBatchNormAct, FrozenParametersGetNoGradient) {
  Sequential net = pair(8);
  convert_batch_norm_act(*net);
  for (torch::Tensor& parameter : net->parameters()) parameter.requires_grad_(false);
  const torch::Tensor x = images(8).requires_grad_();
  net->forward(x).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  for (const torch::Tensor& parameter : net->parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST(ConvertBatchNormAct, RefusesWhatTheLayersRefuse) {
  Sequential net = pair(8);
  convert_batch_norm_act(*net);
  for (const torch::Tensor& x : {torch::randn({4, 8, 6}), images(7), torch::randn({1, 8, 1, 1})})
    EXPECT_THROW(net->forward(x), c10::Error) << x.sizes();
}

struct DerivedNormImpl : torch::nn::BatchNorm2dImpl {
  using BatchNorm2dImpl::BatchNorm2dImpl;
};
TORCH_MODULE(DerivedNorm);
struct DerivedSequentialImpl : torch::nn::SequentialImpl {
  using SequentialImpl::SequentialImpl;
};
TORCH_MODULE(DerivedSequential);

TEST(ConvertBatchNormAct, LeavesDerivedClassesAndRefusesANetworkWithoutPlaces) {
  Sequential derived(convolution(3, 8), DerivedNorm(8), ReLU());
  EXPECT_THAT(refusal([&] { convert_batch_norm_act(*derived); }), HasSubstr("has 1 BatchNorm2d, none of them"));
  DerivedSequential own(BatchNorm2d(8), ReLU());
  EXPECT_THAT(refusal([&] { convert_batch_norm_act(*own); }), HasSubstr("use nn::BatchNormAct"));
  EXPECT_THAT(refusal([&] { convert_batch_norm_act(*convolution(3, 8)); }), HasSubstr("has 0 BatchNorm2d"));
}

TEST(ConvertBatchNormAct, RefusesACloneAndACallOfTheExchangedLayer) {
  Sequential net = network();
  convert_batch_norm_act(*net);
  EXPECT_THAT(refusal([&] { net->clone(); }), HasSubstr("clone the module first"));
  EXPECT_THROW(net->at<torch::nn::ReLUImpl>(2), c10::Error);
  Sequential longer;
  longer->extend(*net);
  EXPECT_EQ(net->parameters().size(), longer->parameters().size());
}

TEST(BatchNormAct, IsNormalisationAdditionAndActivation) {
  torch::manual_seed(3);
  for (const Activation act : {Activation::relu, Activation::relu6, Activation::hardswish, Activation::silu,
                               Activation::none, Activation::hardsigmoid})
    for (const bool training : {true, false}) {
      SCOPED_TRACE(static_cast<int>(act));
      BatchNormAct layer({.channels = 8, .activation = act, .epsilon = 1e-3, .momentum = 0.2});
      BatchNorm2d plain(BatchNorm2dOptions(8).eps(1e-3).momentum(0.2));
      layer->train(training);
      plain->train(training);
      const torch::Tensor x = images(8), residual = images(8);
      const bool is_fused = training && act != Activation::hardsigmoid;
      torch::Tensor y;
      EXPECT_EQ(is_fused ? 1 : 0, fused_calls([&] { y = layer->forward_adding(x, residual); }));
      EXPECT_LT(distance(y, activate(plain->forward(x) + residual, act)), 1e-5);
      EXPECT_LT(distance(layer->forward(x), activate(plain->forward(x), act)), 1e-5);
      EXPECT_LT(distance(layer->running_var, plain->running_var), 1e-5);
      EXPECT_EQ(names(*plain), names(*layer));
    }
}

TEST(BatchNormAct, ClonesWithItsActivation) {
  BatchNormAct layer({.channels = 8, .activation = Activation::silu});
  layer->forward(images(8));
  layer->eval();
  const auto copy = std::dynamic_pointer_cast<BatchNormActImpl>(layer->clone());
  ASSERT_TRUE(copy);
  const torch::Tensor x = images(8);
  EXPECT_TRUE(torch::equal(layer->forward(x), copy->forward(x)));
  EXPECT_FALSE(copy->weight.is_same(layer->weight));
  EXPECT_TRUE(copy->named_parameters()["weight"].is_same(copy->weight));
}

TEST(BatchNormAct, StandsInASequential) {
  Sequential net(convolution(3, 8), BatchNormAct(8), convolution(8, 8), BatchNormAct({.channels = 8}));
  EXPECT_EQ(2, fused_calls([&] { net->forward(images(3)); }));
  EXPECT_THAT(c10::str(net), HasSubstr("trireme::nn::BatchNormAct(8, relu)"));
}

TEST(BatchNormAct, RefusesNoChannels) {
  EXPECT_THAT(refusal([] { BatchNormAct({.activation = Activation::relu}); }), HasSubstr("0 channels"));
}

}  // namespace
}  // namespace trireme::nn
