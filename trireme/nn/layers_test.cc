#include "trireme/nn/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "trireme/core/test_support.h"
#include "trireme/nn/init.h"

namespace trireme::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> values(const torch::Tensor& x) {
  const torch::Tensor flat = x.detach().contiguous().flatten();
  return {flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel()};
}

bool near(const torch::Tensor& a, const torch::Tensor& b, double tolerance = 1e-6) {
  return a.sizes() == b.sizes() && torch::allclose(a, b, tolerance, tolerance);
}

TEST(Activation, EachIsItsFormula) {
  const torch::Tensor x = torch::tensor({-4.0f, -1.0f, 0.0f, 2.0f, 7.0f});
  EXPECT_THAT(values(activate(x, Activation::none)), ElementsAre(-4, -1, 0, 2, 7));
  EXPECT_THAT(values(activate(x, Activation::relu)), ElementsAre(0, 0, 0, 2, 7));
  EXPECT_TRUE(near(activate(x, Activation::hardsigmoid), torch::tensor({0.0f, 1 / 3.0f, 0.5f, 5 / 6.0f, 1.0f})));
  EXPECT_TRUE(near(activate(x, Activation::hardsigmoid_fifth), torch::tensor({0.0f, 0.3f, 0.5f, 0.9f, 1.0f})));
  EXPECT_TRUE(near(activate(x, Activation::hardswish), x * activate(x, Activation::hardsigmoid)));
  EXPECT_TRUE(near(activate(x, Activation::sigmoid), 1 / (1 + torch::exp(-x))));
}

TEST(Activation, TheCallersTensorStaysUnlessInPlaceIsAsked) {
  torch::Tensor x = torch::tensor({-1.0f, 1.0f});
  activate(x, Activation::relu);
  EXPECT_THAT(values(x), ElementsAre(-1, 1));
  EXPECT_TRUE(activate_in_place(x, Activation::relu).is_same(x));
  EXPECT_THAT(values(x), ElementsAre(0, 1));
}

TEST(ConvBnAct, RefusesWhatIsNoConvolution) {
  EXPECT_THAT(refusal([] { ConvBnAct({.in = 0, .out = 8}); }), HasSubstr("in 0, out 8"));
  EXPECT_THAT(refusal([] { ConvBnAct({.in = 8, .out = 12, .groups = 8}); }), HasSubstr("12 out cannot be divided"));
  EXPECT_THAT(refusal([] { ConvBnAct({.in = 8, .out = 8, .conv_name = "0", .bn_name = "0"}); }),
              HasSubstr("both named '0'"));
}

TEST(ConvBnAct, IsTheThreeLayersInARow) {
  ConvBnAct block({.in = 4, .out = 8, .kernel = 3, .stride = 2, .groups = 4, .activation = Activation::hardswish});
  const torch::Tensor x = torch::randn({2, 4, 9, 9});
  const auto state = block->named_parameters();
  const torch::Tensor convolved = torch::conv2d(x, state["conv.weight"], {}, 2, 1, 1, 4);
  const torch::Tensor normal =
      torch::batch_norm(convolved, state["bn.weight"], state["bn.bias"], {}, {}, true, 0, 1e-5, false);
  EXPECT_TRUE(near(block->forward(x), torch::hardswish(normal)));
}

TEST(ConvBnAct, NamesPaddingAndStatisticsAreTheCallers) {
  ConvBnAct block({.in = 3, .out = 5, .kernel = 5, .padding = 0, .bn_momentum = 1, .conv_name = "0", .bn_name = "1"});
  EXPECT_THAT(block->named_parameters().keys(), ElementsAre("0.weight", "1.weight", "1.bias"));
  const torch::Tensor x = torch::randn({3, 3, 7, 7});
  EXPECT_EQ(block->forward(x).sizes(), torch::IntArrayRef({3, 5, 3, 3}));
  const torch::Tensor mean = torch::conv2d(x, block->named_parameters()["0.weight"]).mean({0, 2, 3});
  EXPECT_TRUE(near(block->named_buffers()["1.running_mean"], mean, 1e-5));
}

TEST(ConvBnAct, StaysChannelsLast) {
  ConvBnAct block({.in = 8, .out = 8, .kernel = 3});
  for (auto& weight : block->parameters())
    if (weight.dim() == 4) weight.set_data(weight.contiguous(torch::MemoryFormat::ChannelsLast));
  const torch::Tensor x = torch::randn({2, 8, 6, 6}).contiguous(torch::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(block->forward(x).is_contiguous(torch::MemoryFormat::ChannelsLast));
}

TEST(ConvBnAct, FoldedDoesTheSameInEvaluation) {
  ConvBnAct block({.in = 6, .out = 6, .kernel = 3, .groups = 6, .activation = Activation::none});
  const torch::Tensor x = torch::randn({4, 6, 8, 8});
  const torch::NoGradGuard no_grad;
  for (auto& item : block->named_parameters()) item.value().uniform_(0.5, 1.5);
  for (int i = 0; i < 3; ++i) block->forward(x * 2 + 1);  // statistics that are not 0 and 1
  block->eval();
  const auto [weight, bias] = block->folded();
  EXPECT_TRUE(near(torch::conv2d(x, weight, bias, 1, 1, 1, 6), block->forward(x), 1e-5));
}

TEST(SqueezeExcite, ScalesChannelsByTheGateOfTheirMeans) {
  SqueezeExcite se({.channels = 8, .squeeze = 2, .gate = Activation::hardsigmoid_fifth});
  EXPECT_THAT(se->named_parameters().keys(), ElementsAre("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"));
  const torch::Tensor x = torch::randn({3, 8, 5, 5});
  const auto state = se->named_parameters();
  const torch::Tensor narrow = torch::relu(torch::conv2d(x.mean({2, 3}, true), state["fc1.weight"], state["fc1.bias"]));
  const torch::Tensor gate =
      torch::clamp(torch::conv2d(narrow, state["fc2.weight"], state["fc2.bias"]) / 5 + 0.5, 0, 1);
  EXPECT_TRUE(near(se->forward(x), x * gate));
  EXPECT_THAT(refusal([] { SqueezeExcite({.channels = 3, .squeeze = 0}); }), HasSubstr("3 channels in and 0 out"));
}

TEST(Dropout, TheScaleIsWhereItIsSaid) {
  const torch::Tensor ones = torch::ones({10000});
  Dropout plain(0.5), paddle(0.5, DropoutScale::in_evaluation);
  EXPECT_EQ(plain->forward(ones).max().item<float>(), 2);
  EXPECT_EQ(paddle->forward(ones).max().item<float>(), 1);
  EXPECT_NEAR(paddle->forward(ones).mean().item<float>(), 0.5, 0.05);
  plain->eval();
  paddle->eval();
  EXPECT_TRUE(torch::equal(plain->forward(ones), ones));
  EXPECT_TRUE(torch::equal(paddle->forward(ones), ones * 0.5));
}

TEST(Dropout, RefusesWhatIsNoProbability) {
  EXPECT_THAT(refusal([] { Dropout dropout(1.0); }), HasSubstr("the probability is 1"));
  EXPECT_THAT(refusal([] { Dropout dropout(-0.1); }), HasSubstr("-0.1"));
  const torch::Tensor x = torch::randn({5});
  EXPECT_TRUE(torch::equal(Dropout(0.0, DropoutScale::in_evaluation)->forward(x), x));
}

TEST(Init, SpreadFollowsTheFan) {
  torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(64, 128, 3).groups(4)),
                            torch::nn::Linear(200, 100));
  const auto spread = [&](int64_t parameter) { return net->parameters()[parameter].std().item<double>(); };
  const auto expected = [](double fan) { return ::testing::DoubleNear(std::sqrt(2 / fan), 0.03 * std::sqrt(2 / fan)); };
  kaiming_convs(*net, Fan::in);
  EXPECT_THAT(spread(0), expected(9 * 16));
  kaiming_convs(*net, Fan::in_all_groups);
  EXPECT_THAT(spread(0), expected(9 * 64));
  kaiming_convs(*net, Fan::out);
  EXPECT_THAT(spread(0), expected(9 * 128));
  normal_linears(*net, 0.5);
  EXPECT_NEAR(spread(2), 0.5, 0.02);
  xavier_linears(*net);
  EXPECT_NEAR(net->parameters()[2].abs().max().item<double>(), std::sqrt(6.0 / 300), 1e-3);
  for (const int64_t bias : {1, 3}) EXPECT_EQ(net->parameters()[bias].abs().max().item<float>(), 0);
}

TEST(Init, IsPossibleInAConstructor) {
  struct Net : torch::nn::Module {
    Net() : conv(register_module("conv", torch::nn::Conv2d(1, 1, 3))) { kaiming_convs(*this, Fan::in); }
    torch::nn::Conv2d conv;
  };
  EXPECT_EQ(Net().conv->bias.item<float>(), 0);
}

}  // namespace
}  // namespace trireme::nn
