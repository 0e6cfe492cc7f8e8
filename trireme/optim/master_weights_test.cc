#include "trireme/optim/master_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "trireme/core/test_support.h"
#include "trireme/optim/amp.h"
#include "trireme/optim/optimizers.h"
#include "trireme/optim/test_devices.h"

namespace trireme::optim {
namespace {

using testing::HasSubstr;
using torch::Tensor;

struct Net : torch::nn::Module {
  Net() {
    linear = register_module("linear", torch::nn::Linear(2, 2));
    norm = register_module("norm", torch::nn::BatchNorm1d(2));
  }
  torch::nn::Linear linear{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

TEST(MasterWeights, NormsKeepTheirPrecision) {
  Net net;
  const Tensor weight = net.linear->weight;
  lower_precision(net, torch::kBFloat16);
  EXPECT_EQ(net.linear->weight.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(net.linear->weight.is_same(weight));
  EXPECT_EQ(net.norm->weight.scalar_type(), torch::kFloat);
  EXPECT_EQ(net.norm->running_mean.scalar_type(), torch::kFloat);
  EXPECT_THAT(refusal([&] { lower_precision(net, torch::kDouble); }), HasSubstr("Double"));
}

TEST(MasterWeights, ComeBackToTheModel) {
  Net net;
  net.register_buffer("table", torch::full({1}, 0.5));
  lower_precision(net, torch::kHalf);
  MasterWeights masters(net.parameters());
  const torch::NoGradGuard no_grad;
  Tensor master = masters.parameters()[0];
  master.fill_(1 + 1e-6);  // too fine for what is low
  net.linear->weight.mutable_grad() = torch::ones_like(net.linear->weight);
  raise_precision(net, &masters);
  for (const Tensor& parameter : net.parameters()) EXPECT_EQ(parameter.scalar_type(), torch::kFloat);
  EXPECT_EQ(net.named_buffers()["table"].scalar_type(), torch::kFloat);
  EXPECT_TRUE(torch::equal(net.linear->weight, torch::full({2, 2}, 1 + 1e-6)));
  EXPECT_TRUE(net.linear->weight.requires_grad());
  EXPECT_FALSE(net.linear->weight.grad().defined()) << "it would be of the old type";
  lower_precision(net, torch::kHalf);
  raise_precision(net);
  EXPECT_TRUE(torch::equal(net.linear->weight, torch::ones({2, 2})));
}

TEST(MasterWeights, SmallStepsAreNotLost) {
  const Tensor w = torch::ones({1}, torch::kBFloat16).to(devices().back()).requires_grad_();
  MasterWeights masters({w});
  SGD sgd(masters.parameters(), {.lr = 1});
  for (int i = 0; i < 64; ++i) {
    w.mutable_grad() = torch::full_like(w, 1.0 / 1024);  // a quarter of bf16's grain at 1
    masters.take_gradients();
    EXPECT_FALSE(w.grad().defined());
    sgd.step();
    masters.write_back();
    sgd.zero_grad();
  }
  EXPECT_NEAR(w.item<double>(), 1 - 64.0 / 1024, 1e-6);
}

TEST(MasterWeights, ATensorWithTwoNamesHasOneMaster) {
  const Tensor w = torch::ones({2}, torch::kHalf).requires_grad_();
  MasterWeights masters({w, w});
  ASSERT_EQ(masters.parameters().size(), 2u);
  EXPECT_TRUE(masters.parameters()[0].is_same(masters.parameters()[1]));
  w.mutable_grad() = torch::ones({2}, torch::kHalf);
  masters.take_gradients();
  EXPECT_TRUE(masters.parameters()[0].grad().equal(torch::ones({2})));
  torch::NoGradGuard no_grad;
  SGD sgd({w}, {.lr = 1});
  masters.adopt(sgd);
  sgd.param_groups()[0].params()[0].fill_(3);
  masters.write_back();
  EXPECT_TRUE(w.equal(torch::full({2}, 3, torch::kHalf))) << w;
}

TEST(MasterWeights, AnAdoptedOptimizerStepsTheMasters) {
  Net net;
  lower_precision(net, torch::kHalf);
  MasterWeights masters(net.parameters());
  SGD sgd(decay_groups(net, {.norm = true}), {.lr = 1, .momentum = 0.9});
  masters.adopt(sgd);
  const auto& groups = sgd.param_groups();
  for (const Tensor& master : groups[0].params()) EXPECT_EQ(master.scalar_type(), torch::kFloat);
  EXPECT_TRUE(groups[1].params()[0].is_same(net.norm->weight));  // its own master
  SGD other({torch::ones({3})}, {.lr = 1});
  EXPECT_THAT(refusal([&] { masters.adopt(other); }), HasSubstr("[3] has no master"));
  groups[0].params()[0].mutable_grad() = torch::ones_like(groups[0].params()[0]);
  sgd.step();
  EXPECT_THAT(refusal([&] { masters.adopt(sgd); }), HasSubstr("before its first step"));
}

TEST(MasterWeights, AScaledHalfGradientComesThrough) {
  const Tensor w = torch::ones({1}, torch::kHalf).requires_grad_();
  MasterWeights masters({w});
  SGD sgd(masters.parameters(), {.lr = 1});
  GradScaler scaler({.init_scale = 65536});
  const double tiny = 1e-8;  // below fp16's range
  w.mutable_grad() = torch::full({1}, tiny * 65536, torch::kHalf);
  masters.take_gradients();
  scaler.unscale_(sgd);
  EXPECT_NEAR(masters.parameters()[0].grad().item<double>(), tiny, 1e-11);
}

TEST(MasterWeights, WithoutGradientAMasterHasNone) {
  const Tensor w = torch::ones({1}, torch::kHalf).requires_grad_();
  MasterWeights masters({w});
  masters.take_gradients();
  EXPECT_FALSE(masters.parameters()[0].grad().defined());
}

}  // namespace
}  // namespace trireme::optim
