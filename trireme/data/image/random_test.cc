#include "trireme/data/image/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

namespace trireme::image {
namespace {

constexpr int kDraws = 20000;

struct Moments {
  double mean = 0, variance = 0;
};

template <typename Draw>
Moments moments_of(const Draw& draw) {
  double sum = 0, squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = draw();
    sum += x;
    squares += x * x;
  }
  const double mean = sum / kDraws;
  return {mean, squares / kDraws - mean * mean};
}

TEST(Random, TheNumbersOfASeedNeverChange) {
  Random random(7);  // worked out with Python's whole numbers
  EXPECT_EQ(random.next(), 0x50858203873ed679u);
  EXPECT_EQ(random.next(), 0x38dc32bc1464f9aeu);
  Random two({1, 2});
  EXPECT_EQ(two.next(), 0xa675ee6755c07ee5u);
}

TEST(Random, EveryPartOfASeedCountsAndSoDoesItsPlace) {
  const std::vector<Random> seeds{Random({1, 2}), Random({2, 1}),    Random({3}),
                                  Random({1}),    Random({1, 2, 0}), Random(0)};
  std::vector<uint64_t> first;
  for (Random random : seeds) first.push_back(random.next());
  for (size_t i = 0; i < first.size(); ++i)
    for (size_t k = 0; k < i; ++k) EXPECT_NE(first[i], first[k]) << i << ' ' << k;
}

TEST(Random, UniformFillsItsRangeEvenly) {
  Random random(3);
  std::array<int, 10> counts{};
  for (int i = 0; i < kDraws; ++i) {
    const double x = random.uniform(5, 6);
    ASSERT_GE(x, 5);
    ASSERT_LT(x, 6);
    ++counts[static_cast<size_t>((x - 5) * 10)];
  }
  for (const int count : counts) EXPECT_NEAR(count, kDraws / 10, 200);
}

TEST(Random, WholeNumbersIncludeBothEnds) {
  Random random(4);
  std::array<int, 3> counts{};
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(random.integer(-1, 1) + 1)];
  for (const int count : counts) EXPECT_NEAR(count, kDraws / 3, 300);
  EXPECT_EQ(random.integer(9, 9), 9);
  EXPECT_EQ(random.below(1), 0u);
  EXPECT_LT(random.below(0xFFFFFFFFFFFFFFFFu), 0xFFFFFFFFFFFFFFFFu);
}

TEST(Random, ChanceOfNothingAndOfCertainty) {
  Random random(5);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_FALSE(random.chance(0));
    ASSERT_TRUE(random.chance(1));
  }
}

TEST(Random, NormalHasItsMeanAndDeviation) {
  Random random(6);
  const Moments moments = moments_of([&] { return random.normal(3, 2); });
  EXPECT_NEAR(moments.mean, 3, 0.06);
  EXPECT_NEAR(moments.variance, 4, 0.15);
}

TEST(Random, GammaHasItsMeanAndVariance) {
  for (const double shape : {0.2, 1.0, 4.5}) {
    Random random(8);
    const Moments moments = moments_of([&] { return random.gamma(shape); });
    EXPECT_NEAR(moments.mean, shape, 0.06 * std::max(1.0, shape)) << shape;
    EXPECT_NEAR(moments.variance, shape, 0.12 * std::max(1.0, shape)) << shape;
  }
}

TEST(Random, BetaHasItsMeanAndVarianceAndStaysWithin) {
  for (const auto& [a, b] : std::vector<std::pair<double, double>>{{0.2, 0.2}, {1, 1}, {2, 5}}) {
    Random random(9);
    const Moments moments = moments_of([&, a = a, b = b] {
      const double x = random.beta(a, b);
      EXPECT_TRUE(x >= 0 && x <= 1);
      return x;
    });
    const double sum = a + b;
    EXPECT_NEAR(moments.mean, a / sum, 0.01);
    EXPECT_NEAR(moments.variance, a * b / (sum * sum * (sum + 1)), 0.005);
  }
}

TEST(Random, BetaOfTinyShapesIsStillANumber) {
  Random random(10);
  for (int i = 0; i < 200; ++i) {
    const double x = random.beta(1e-5, 1e-5);
    ASSERT_TRUE(x >= 0 && x <= 1);
  }
}

}  // namespace
}  // namespace trireme::image
