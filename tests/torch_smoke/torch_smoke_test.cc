// Does the libtorch we were given compile, link and run?
#include <gtest/gtest.h>
#include <torch/torch.h>

namespace {

TEST(TorchSmoke, MakesATensor) {
  auto x = torch::arange(6).reshape({2, 3});
  EXPECT_EQ(x.sum().item<int64_t>(), 15);
}

TEST(TorchSmoke, BackwardFillsTheGradient) {
  auto x = torch::tensor({1.0, 2.0, 3.0}, torch::requires_grad());
  (x * x).sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), 2 * x));
}

TEST(TorchSmoke, AnOptimizerLowersTheLoss) {
  torch::manual_seed(1);
  torch::nn::Linear layer(4, 1);
  torch::optim::SGD sgd(layer->parameters(), 0.1);
  auto x = torch::randn({16, 4});
  auto y = x.sum(1, /*keepdim=*/true);
  auto loss = [&] { return torch::mse_loss(layer(x), y); };
  const double before = loss().item<double>();
  for (int step = 0; step < 20; ++step) {
    sgd.zero_grad();
    loss().backward();
    sgd.step();
  }
  EXPECT_LT(loss().item<double>(), 0.5 * before);
}

}  // namespace
