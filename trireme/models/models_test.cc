#include "trireme/models/models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/torch.h>

#include <limits>

#include "trireme/core/test_support.h"
#include "trireme/models/settings.h"
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

TEST(Create, BothNamesOfAResNetMeanTheSame) {
  torch::manual_seed(1);
  const auto clas = create("ResNet18");
  torch::manual_seed(1);
  const auto vision = create("resnet18");
  EXPECT_EQ(clas->named_parameters().keys(), vision->named_parameters().keys());
  EXPECT_TRUE(torch::equal(clas->parameters()[0], vision->parameters()[0]));
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
                         ::testing::Values("ResNet18", "ResNet50_vd", "mobilenet_v3_small", "MobileNetV3_small_x0_35",
                                           "PPLCNet_x0_25", "PPLCNetV2_base", "PPHGNet_tiny"),
                         [](const auto& one) { return one.param; });

class SmallInput : public ::testing::TestWithParam<const char*> {};

TEST_P(SmallInput, KeepsEnoughPixelsOfADigit) {
  const auto net = create(GetParam(), {.class_num = 10, .in_channels = 1, .small_input = true});
  EXPECT_EQ(net->forward(torch::randn({2, 1, 28, 28})).sizes(), torch::IntArrayRef({2, 10}));
}

INSTANTIATE_TEST_SUITE_P(Zoo, SmallInput,
                         ::testing::Values("LeNet", "MnistPerceptron", "ResNet18", "mobilenet_v3_small",
                                           "MobileNetV3_small_x0_35", "PPLCNet_x0_25", "PPLCNetV2_base"),
                         [](const auto& one) { return one.param; });

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
