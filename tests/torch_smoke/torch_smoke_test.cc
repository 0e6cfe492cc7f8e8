// Does the libtorch we were given compile, link and run, and can its errors be read?
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "trireme/launch/spawn.h"

namespace {

using testing::MatchesRegex;

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

// spawn() starts this program again, so this case is the last: run as a whole, the copy walks through the others first.
TEST(TorchSmoke, AnErrorComesThroughSpawnWithoutItsBacktrace) {
  try {
    trireme::spawn([] { torch::ones({2, 3}).matmul(torch::ones({2, 3})); }, {.nprocs = 1});
    FAIL() << "the copy's error is lost";
  } catch (const trireme::SpawnError& error) {
    EXPECT_THAT(error.what(), MatchesRegex("rank 0 failed: [^\n]*shapes cannot be multiplied \\(2x3 and 2x3\\)"));
  }
}

}  // namespace
