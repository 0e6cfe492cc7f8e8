#include "trireme/models/models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "trireme/core/test_support.h"
#include "trireme/models/settings.h"
#include "trireme/nn/channels_last.h"
#include "trireme/nn/layers.h"

namespace trireme::models {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Running statistics as after some training, where folding and modes can go wrong.
void make_worn(Classifier& net) {
  const torch::NoGradGuard no_grad;
  for (const auto& buffer : net.named_buffers())
    if (buffer.value().dim() > 0) buffer.value().uniform_(0.5, 1.5);
}

TEST(Create, UnknownNamesGetTheNearest) {
  EXPECT_THAT(refusal([] { create("PPLCNet_x1_1"); }), HasSubstr("'PPLCNet_x1_1' (did you mean PPLCNet_x1_"));
  EXPECT_THAT(refusal([] { create("MobileNetV3_smal_x1_0"); }), HasSubstr("did you mean MobileNetV3_small_x1_0?"));
  EXPECT_THAT(refusal([] { create("zzz"); }), AllOf(HasSubstr("PPHGNet_base"), Not(HasSubstr("did you mean"))));
  EXPECT_THAT(refusal([] { create(""); }), HasSubstr("no network ''"));
}

TEST(Create, RefusesOptionsThatANetworkCannotHonour) {
  EXPECT_THAT(refusal([] { create("PPLCNet_x0_25", {.class_num = 0}); }), HasSubstr("PPLCNet: class_num is 0"));
  EXPECT_THAT(refusal([] { create("LeNet", {.in_channels = -3}); }), HasSubstr("LeNet: in_channels is -3"));
  EXPECT_THAT(refusal([] { create("ResNet18", {.dropout = 0.1}); }), HasSubstr("dropout is 0.1, but this network"));
  EXPECT_THAT(refusal([] { create("PPHGNet_tiny", {.dropout = 1.0}); }), HasSubstr("must be in [0, 1)"));
  EXPECT_THAT(refusal([] { pplcnet(0); }), HasSubstr("the scale is 0"));
  EXPECT_THAT(refusal([] { pplcnet(std::numeric_limits<double>::quiet_NaN()); }), HasSubstr("the scale is nan"));
}

TEST(Create, FollowsOptions) {
  const auto net = create("PPLCNet_x0_25", {.class_num = 7, .in_channels = 4, .dropout = 0.0});
  EXPECT_EQ(net->forward(torch::randn({2, 4, 64, 64})).sizes(), torch::IntArrayRef({2, 7}));
  EXPECT_EQ(lenet(5)->forward(torch::randn({3, 1, 28, 28})).size(1), 5);
}

/// Parameters and statistics in the order of the network.
std::vector<torch::Tensor> tensors_of(const Classifier& net) {
  std::vector<torch::Tensor> all = net.parameters();
  for (const torch::Tensor& buffer : net.buffers()) all.push_back(buffer);
  return all;
}

// torchvision's and PaddleClas' register their layers in the same order, under other names.
TEST(ClasResNet, ComputesWhatTorchvisionsDoesWithTheSameWeights) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor images = torch::randn({2, 3, 64, 64});
  for (const char* name : {"resnet18", "resnet50"}) {
    const auto vision = create(name, {.class_num = 10});
    make_worn(*vision);
    const bool basic = std::string(name) == "resnet18";
    const auto clas =
        basic ? clas_resnet(18, {.class_num = 10, .first_short_conv = false}) : clas_resnet(50, {.class_num = 10});
    const auto from = tensors_of(*vision), to = tensors_of(*clas);
    ASSERT_EQ(from.size(), to.size()) << name;
    for (size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i]);
    vision->eval();
    clas->eval();
    EXPECT_TRUE(torch::allclose(clas->forward(images), vision->forward(images), 1e-5, 1e-5)) << name;
  }
}

TEST(ClasResNet, TheFirstShortcutNeedsItsConvolutionWhereItWidens) {
  EXPECT_THAT(refusal([] { create("ResNet50", {.first_short_conv = false}); }), HasSubstr("64 channels to 256"));
  EXPECT_THAT(refusal([] { create("PPLCNet_x0_25", {.first_short_conv = true}); }), HasSubstr("not an option of this"));
  EXPECT_THAT(refusal([] { clas_resnet(19); }), HasSubstr("there is no ResNet19; ResNets have 18, 34, 50 or 101"));
}

/// The height of what the last stage gives for an image of 64 pixels, without the pooling of a ResNet.
int64_t last_size(const std::string& name, const std::vector<int64_t>& strides) {
  const torch::NoGradGuard no_grad;
  const auto net = create(name, {.class_num = 10, .stride_list = strides});
  net->eval();
  const auto last = name == "PPLCNet_x0_25" ? "blocks6" : "blocks";
  torch::Tensor x = torch::randn({1, 3, 64, 64});
  const auto modules = net->named_children();
  if (name == "PPLCNet_x0_25") {
    x = modules["conv1"]->as<nn::ConvBnActImpl>()->forward(x);
    for (const char* stage : {"blocks2", "blocks3", "blocks4", "blocks5"})
      x = modules[stage]->as<torch::nn::SequentialImpl>()->forward(x);
  } else {
    x = modules["stem"]->as<torch::nn::SequentialImpl>()->forward(x);
  }
  return modules[last]->as<torch::nn::SequentialImpl>()->forward(x).size(2);
}

TEST(StrideList, ChangesTheNetwork) {
  EXPECT_EQ(last_size("PPLCNet_x0_25", {}), 2);
  EXPECT_EQ(last_size("PPLCNet_x0_25", {2, 2, 2, 1, 1}), 8);
  EXPECT_EQ(last_size("PPLCNet_x0_25", {1, 2, 2, 2, 2}), 4);
  EXPECT_EQ(last_size("ResNet18", {}), 4);
  EXPECT_EQ(last_size("ResNet18", {2, 2, 2, 1, 1}), 16);
  EXPECT_EQ(last_size("ResNet50_vd", {2, 2, 2, 2, 1}), 8);
  const auto pooled = create("ResNet18", {.class_num = 10, .stride_list = {2, 1, 2, 2, 2}});
  EXPECT_EQ(pooled->forward(torch::randn({2, 3, 32, 32})).sizes(), torch::IntArrayRef({2, 10}));
}

TEST(StrideList, MustFitTheNetwork) {
  EXPECT_THAT(refusal([] {
                create("PPLCNet_x0_25", {.stride_list = {2, 2}});
              }),
              HasSubstr("PPLCNet: stride_list has 2 numbers; it must have 5"));
  EXPECT_THAT(refusal([] { create("ResNet18", {.stride_list = {2, 2, 2, 0, 1}}); }), HasSubstr("stride_list is 0"));
  EXPECT_THAT(refusal([] { create("mobilenet_v3_small", {.stride_list = {2}}); }), HasSubstr("not an option of this"));
  EXPECT_THAT(refusal([] {
                create("ResNet18", {.small_input = true, .stride_list = {1, 1, 2, 2, 2}});
              }),
              HasSubstr("small_input and stride_list"));
}

TEST(LrMultList, NamesEveryStage) {
  const auto factor = [](const Classifier& net, const std::string& name) {
    for (const LrFactor& one : net.lr_factors())
      if (name.starts_with(one.prefix)) return one.factor;
    return 1.0;
  };
  const auto lcnet = create("PPLCNet_x0_25", {.lr_mult_list = {0, 0.2, 0.3, 0.4, 0.5, 0.6}});
  EXPECT_EQ(factor(*lcnet, "conv1.conv.weight"), 0);
  EXPECT_EQ(factor(*lcnet, "blocks2.0.dw_conv.conv.weight"), 0.2);
  EXPECT_EQ(factor(*lcnet, "blocks6.1.se.conv1.bias"), 0.6);
  EXPECT_EQ(factor(*lcnet, "last_conv.weight"), 1);
  const auto resnet = create("ResNet18", {.lr_mult_list = {0.1, 0.2, 0.3, 0.4, 0.5}});
  EXPECT_EQ(factor(*resnet, "stem.0.bn.weight"), 0.1);
  EXPECT_EQ(factor(*resnet, "blocks.1.conv0.conv.weight"), 0.2);
  EXPECT_EQ(factor(*resnet, "blocks.2.short.conv.weight"), 0.3);
  EXPECT_EQ(factor(*resnet, "blocks.7.conv1.bn.bias"), 0.5);
  EXPECT_EQ(factor(*resnet, "fc.weight"), 1);
  EXPECT_THAT(refusal([] {
                create("PPLCNet_x0_25", {.lr_mult_list = {1, 1, 1, 1, 1}});
              }),
              HasSubstr("lr_mult_list has 5 numbers; it must have 6"));
  EXPECT_THAT(refusal([] { create("ResNet18", {.lr_mult_list = {1, 1, -1, 1, 1}}); }), HasSubstr("not be negative"));
}

TEST(MakeDivisible, NeverLosesMoreThanATenth) {
  EXPECT_EQ(make_divisible(4), 8);
  EXPECT_EQ(make_divisible(16 * 0.35), 8);
  EXPECT_EQ(make_divisible(11), 16);  // 8 would be less than 9.9
  EXPECT_EQ(make_divisible(44.8), 48);
  EXPECT_EQ(make_divisible(179.2), 176);
}

/// One of each architecture, the smallest.
class Network : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { torch::manual_seed(3); }
  ClassifierPtr net_ = create(GetParam(), {.class_num = 10, .in_channels = 3});
  torch::Tensor images_ = torch::randn({2, 3, 64, 64});
};

TEST_P(Network, GradientReachesEveryParameter) {
  torch::cross_entropy_loss(net_->forward(images_), torch::tensor({1, 7})).backward();
  for (const auto& item : net_->named_parameters()) {
    const torch::Tensor& gradient = item.value().grad();
    if (gradient.defined()) {
      EXPECT_GT(gradient.abs().max().item<float>(), 0) << item.key();
    } else {  // the sums of PPLCNetV2, which only reparameterize() fills
      EXPECT_THAT(item.key(), ::testing::MatchesRegex("stages\\.[23]\\.[0-9]\\.dw_conv\\.(weight|bias)"));
    }
  }
}

TEST_P(Network, EvaluationDependsOnTheImageAlone) {
  make_worn(*net_);
  net_->eval();
  const torch::NoGradGuard no_grad;
  const torch::Tensor both = net_->forward(images_);
  EXPECT_TRUE(torch::equal(net_->forward(images_), both));
  EXPECT_TRUE(torch::allclose(net_->forward(images_.narrow(0, 1, 1)), both.narrow(0, 1, 1), 1e-4, 1e-5));
}

TEST_P(Network, ChannelsLastChangesNothing) {
  make_worn(*net_);
  net_->eval();
  const torch::NoGradGuard no_grad;
  const torch::Tensor expected = net_->forward(images_);
  for (auto& weight : net_->parameters())
    if (weight.dim() == 4) weight.set_data(weight.contiguous(torch::MemoryFormat::ChannelsLast));
  const torch::Tensor actual = net_->forward(images_.contiguous(torch::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(torch::allclose(actual, expected, 1e-4, 1e-4 * expected.abs().max().item<double>()));
}

torch::Tensor traced(Classifier& net, const torch::Tensor& example, const torch::Tensor& input) {
  for (auto& parameter : net.parameters()) parameter.set_requires_grad(false);  // constants of the graph
  const auto forward = [&](torch::jit::Stack stack) { return torch::jit::Stack{net.forward(stack[0].toTensor())}; };
  const auto no_name = [](const torch::Tensor&) { return std::string(); };
  const auto state = torch::jit::tracer::trace({example}, forward, no_name).first;
  torch::jit::Stack stack = {input};
  torch::jit::InterpreterState(torch::jit::Code(state->graph, "forward")).run(stack);
  return stack.back().toTensor();
}

TEST_P(Network, ATraceServesOtherBatches) {
  net_->eval();
  const torch::Tensor other = torch::randn({3, 3, 96, 64});
  const torch::Tensor actual = traced(*net_, images_, other);
  EXPECT_TRUE(torch::allclose(actual, net_->forward(other), 1e-4, 1e-5));
}

INSTANTIATE_TEST_SUITE_P(Zoo, Network,
                         ::testing::Values("resnet18", "ResNet18", "ResNet50_vd", "mobilenet_v3_small",
                                           "MobileNetV3_small_x0_35", "PPLCNet_x0_25", "PPLCNetV2_base",
                                           "PPHGNet_tiny"),
                         [](const auto& one) { return one.param; });

class SmallInput : public ::testing::TestWithParam<const char*> {};

TEST_P(SmallInput, KeepsEnoughPixelsOfADigit) {
  const auto net = create(GetParam(), {.class_num = 10, .in_channels = 1, .small_input = true});
  EXPECT_EQ(net->forward(torch::randn({2, 1, 28, 28})).sizes(), torch::IntArrayRef({2, 10}));
}

INSTANTIATE_TEST_SUITE_P(Zoo, SmallInput,
                         ::testing::Values("LeNet", "MnistPerceptron", "resnet18", "ResNet18", "mobilenet_v3_small",
                                           "MobileNetV3_small_x0_35", "PPLCNet_x0_25", "PPLCNetV2_base"),
                         [](const auto& one) { return one.param; });

struct FusedCalls {
  int blocks = 0, norms = 0;
};

/// How often f() runs the fused operators of the forward pass.
FusedCalls fused_calls(const std::function<void()>& f) {
  thread_local FusedCalls calls;
  calls = {};
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
        calls.blocks += function.name() == std::string("trireme::inverted_residual");
        calls.norms += function.name() == std::string("trireme::batch_norm_act");
        return nullptr;
      }).scopes({at::RecordScope::FUNCTION}));
  f();
  at::removeCallback(handle);
  return calls;
}

double distance(const torch::Tensor& a, const torch::Tensor& b) {
  const torch::Tensor wide = b.detach().to(torch::kDouble);
  return ((a.detach().to(torch::kDouble) - wide).norm() / wide.norm()).item<double>();
}

/// All of them in one: what is 0 but for rounding, such as the gradient of a bias before a normalisation, weighs little.
torch::Tensor joined(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> parts;
  for (const torch::Tensor& tensor : tensors) parts.push_back(tensor.to(torch::kDouble).reshape({-1}));
  return torch::cat(parts);
}

torch::Tensor gradients(const Classifier& net) {
  std::vector<torch::Tensor> all;
  for (const torch::Tensor& parameter : net.parameters()) all.push_back(parameter.grad());
  return joined(all);
}

struct FusedCase {
  const char* name;
  bool has_dropout;
  FusedCalls calls;  // of one forward pass
};

/// A network that trains channels last, and a copy in double, in which nothing is fused.
class FusedNetwork : public ::testing::TestWithParam<FusedCase> {
 protected:
  void SetUp() override {
    torch::manual_seed(3);
    net_ = make();
    plain_ = make();
    const torch::NoGradGuard no_grad;
    for (const torch::Tensor& parameter : net_->parameters())
      if (parameter.dim() == 1) parameter.add_(torch::randn_like(parameter), 0.2);  // as after some training
    const auto from = tensors_of(*net_), to = tensors_of(*plain_);
    for (size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i]);
    plain_->to(torch::kDouble);
    nn::to_channels_last(*net_);
  }
  static ClassifierPtr make() {
    ModelOptions options{.class_num = 10};
    if (GetParam().has_dropout) options.dropout = 0.0;
    return create(GetParam().name, options);
  }

  /// Trains both on one batch, and returns how far the gradients are apart.
  double train() {
    const torch::Tensor images = torch::randn({4, 3, 64, 64}), labels = torch::randint(0, 10, {4});
    torch::Tensor y, expected;
    const FusedCalls fused =
        fused_calls([&] { y = net_->forward(images.contiguous(torch::MemoryFormat::ChannelsLast)); });
    EXPECT_EQ(fused.blocks, GetParam().calls.blocks);
    EXPECT_EQ(fused.norms, GetParam().calls.norms);
    const FusedCalls none = fused_calls([&] { expected = plain_->forward(images.to(torch::kDouble)); });
    EXPECT_EQ(none.blocks + none.norms, 0);
    EXPECT_LT(distance(y, expected), 2e-5);
    for (const ClassifierPtr& net : {net_, plain_}) net->zero_grad();
    torch::cross_entropy_loss(y, labels).backward();
    torch::cross_entropy_loss(expected, labels).backward();
    return distance(gradients(*net_), gradients(*plain_));
  }

  ClassifierPtr net_, plain_;
};

// Limits are relative norms. One layer keeps 5e-6 (fused_test.cc); these networks, of 20 to 50 layers, were seen to keep
// 6e-6 in the outputs and 2e-5 in the gradients, whether they were fused or not. Now and then rounding moves a number
// over the kink of a ReLU, which changes gradients by up to 5e-3, fused or not: hence the best of three batches.
TEST_P(FusedNetwork, TrainsAsItsLayersDo) {
  double least = 1;
  for (int batch = 0; batch < 3; ++batch) {
    const double apart = train();
    EXPECT_LT(apart, 3e-2);
    least = std::min(least, apart);
  }
  EXPECT_LT(least, 1e-4);
  EXPECT_LT(distance(joined(net_->buffers()), joined(plain_->buffers())), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Zoo, FusedNetwork,
                         ::testing::Values(FusedCase{"mobilenet_v3_small", true, {.blocks = 11, .norms = 2}},
                                           FusedCase{"PPLCNet_x0_25", true, {.blocks = 13, .norms = 1}},
                                           FusedCase{"resnet18", false, {.blocks = 0, .norms = 20}}),
                         [](const auto& one) { return one.param.name; });

// The list of layers that a Pipeline takes.
TEST(ResNetLayers, ComputeAndFuseAsTheWholeNetworkDoes) {
  const ModelOptions options{.class_num = 10};
  const auto whole = create("resnet18", options);
  nn::to_channels_last(*whole);
  const torch::Tensor images = torch::randn({2, 3, 64, 64}).contiguous(torch::MemoryFormat::ChannelsLast);
  const auto weights = whole->named_parameters();
  const auto run_layer = [&](const NetworkLayer& layer, const torch::Tensor& x) {
    const auto module = layer.make();
    for (auto& item : module->named_parameters()) item.value().set_data(weights[layer.name + "." + item.key()].data());
    return module->forward(x);
  };
  torch::Tensor y = images, expected;
  const FusedCalls listed = fused_calls([&] {
    for (const NetworkLayer& layer : resnet_layers(18, options)) y = run_layer(layer, y);
  });
  const FusedCalls all = fused_calls([&] { expected = whole->forward(images); });
  EXPECT_EQ(listed.norms, all.norms);
  EXPECT_TRUE(torch::equal(y, expected));
}

TEST(SmallInputStem, HasFourTimesThePixels) {
  const auto stem_of = [](const ModelOptions& options) {
    const auto net = mobilenet_v3_small(options);
    return net->named_modules()["features.0"]->as<nn::ConvBnActImpl>()->forward(torch::randn({1, 1, 28, 28}));
  };
  EXPECT_EQ(stem_of({.in_channels = 1}).size(2), 14);
  EXPECT_EQ(stem_of({.in_channels = 1, .small_input = true}).size(2), 28);
}

TEST(FullSize, GivesAThousandScores) {
  const torch::NoGradGuard no_grad;
  for (const char* name : {"mobilenet_v3_small", "PPLCNet_x0_25", "MobileNetV3_small_x0_35"})
    EXPECT_EQ(create(name)->forward(torch::randn({2, 3, 224, 224})).sizes(), torch::IntArrayRef({2, 1000})) << name;
}

TEST(PPLCNetV2, ReparameterizationKeepsTheOutputs) {
  const auto net = pplcnet_v2_base({.class_num = 10});
  const torch::NoGradGuard no_grad;
  const torch::Tensor images = torch::randn({2, 3, 64, 64});
  for (int i = 0; i < 2; ++i) net->forward(torch::randn({2, 3, 64, 64}));  // statistics of its own
  net->eval();
  const torch::Tensor before = net->forward(images);
  net->reparameterize();
  EXPECT_TRUE(torch::allclose(net->forward(images), before, 1e-5, 1e-5));
  net->reparameterize();  // a second time changes nothing
  EXPECT_TRUE(torch::allclose(net->forward(images), before, 1e-5, 1e-5));
}

TEST(Dropout, IsActiveInTrainingOnly) {
  const auto net = mnist_perceptron({.dropout = 0.5});
  const torch::Tensor digits = torch::randn({4, 1, 28, 28});
  EXPECT_FALSE(torch::equal(net->forward(digits), net->forward(digits)));
  net->eval();
  EXPECT_TRUE(torch::equal(net->forward(digits), net->forward(digits)));
}

}  // namespace
}  // namespace trireme::models
