#include "trireme/data/order/shuffle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace trireme::data {
namespace {

using ::testing::ElementsAre;

std::vector<uint32_t> up_to(uint32_t count) {
  std::vector<uint32_t> values(count);
  std::iota(values.begin(), values.end(), 0u);
  return values;
}

// Sums of position x value tell two permutations of the same length apart.
uint64_t moment(const std::vector<uint32_t>& values) {
  uint64_t sum = 0;
  for (size_t i = 0; i < values.size(); ++i) sum += (i + 1) * values[i];
  return sum;
}

TEST(NumpyShuffle, IsNumpys) {
  auto values = up_to(10);
  numpy_shuffle(values, 0);
  EXPECT_THAT(values, ElementsAre(2, 8, 4, 9, 1, 6, 7, 3, 0, 5));
}

TEST(NumpyShuffle, IsNumpysForManyValues) {
  auto values = up_to(50000);
  numpy_shuffle(values, 7);
  EXPECT_EQ(moment(values), 31194067578537u);
}

TEST(NumpyShuffle, LeavesNoneAndOneAlone) {
  std::vector<uint32_t> none;
  numpy_shuffle(none, 3);
  EXPECT_TRUE(none.empty());
  std::vector<uint32_t> one = {5};
  numpy_shuffle(one, 3);
  EXPECT_THAT(one, ElementsAre(5));
}

TEST(TorchRandperm, IsTorchs) {
  EXPECT_THAT(torch_randperm(10, 0), ElementsAre(4, 1, 7, 5, 3, 9, 0, 8, 6, 2));
  EXPECT_EQ(moment(torch_randperm(50000, 3)), 31193777367134u);
}

TEST(TorchRandperm, TakesTheLow32BitsOfTheSeed) {
  EXPECT_EQ(torch_randperm(100, (uint64_t{1} << 33) + 7), torch_randperm(100, 7));
  EXPECT_NE(torch_randperm(100, 8), torch_randperm(100, 7));
}

TEST(TorchRandperm, OfNoneAndOne) {
  EXPECT_TRUE(torch_randperm(0, 1).empty());
  EXPECT_THAT(torch_randperm(1, 1), ElementsAre(0));
}

}  // namespace
}  // namespace trireme::data
