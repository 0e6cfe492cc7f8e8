#include "trireme/data/order/epoch_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "trireme/core/error.h"

namespace trireme::data {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

using Batches = std::vector<std::vector<int64_t>>;

Batches batches_of(const EpochPlan& plan) {
  Batches batches;
  for (int64_t step = 0; step < plan.steps(); ++step) batches.push_back(plan.batch(step));
  return batches;
}

/// By rank.
std::vector<Batches> whole_epoch(const SamplerOptions& options, int ranks, int64_t epoch = 0) {
  std::vector<Batches> all;
  for (int rank = 0; rank < ranks; ++rank)
    all.push_back(batches_of(EpochPlan(options, epoch, {{.ranks = ranks}}, {rank, ranks})));
  return all;
}

std::map<int64_t, int> counts_of(const std::vector<Batches>& all) {
  std::map<int64_t, int> counts;
  for (const Batches& batches : all)
    for (const auto& batch : batches)
      for (const int64_t sample : batch) ++counts[sample];
  return counts;
}

TEST(EpochPlan, PaddleDealsInBlocksAndSplitsTheTail) {
  const auto all = whole_epoch({.samples = 10, .batch_size = 3}, 2);
  EXPECT_THAT(all[0], ElementsAre(ElementsAre(0, 1, 2), ElementsAre(6, 7)));
  EXPECT_THAT(all[1], ElementsAre(ElementsAre(3, 4, 5), ElementsAre(8, 9)));
}

TEST(EpochPlan, TorchDealsLikeCards) {
  const auto all = whole_epoch({.samples = 10, .batch_size = 3, .order = Order::torch}, 2);
  EXPECT_THAT(all[0], ElementsAre(ElementsAre(0, 2, 4), ElementsAre(6, 8)));
  EXPECT_THAT(all[1], ElementsAre(ElementsAre(1, 3, 5), ElementsAre(7, 9)));
}

TEST(EpochPlan, PaddingComesFromTheHead) {
  const auto all = whole_epoch({.samples = 7, .batch_size = 4}, 3);
  EXPECT_THAT(all[0], ElementsAre(ElementsAre(0, 1, 2)));
  EXPECT_THAT(all[2], ElementsAre(ElementsAre(6, 0, 1)));
}

TEST(EpochPlan, FewerSamplesThanRanksAreRepeatedAgainAndAgain) {
  const auto all = whole_epoch({.samples = 2, .batch_size = 4}, 5);
  const std::vector<int64_t> expected = {0, 1, 0, 1, 0};
  for (size_t rank = 0; rank < 5; ++rank) EXPECT_THAT(all[rank], ElementsAre(ElementsAre(expected[rank])));
}

TEST(EpochPlan, PaddleShufflesThePaddedListAndTorchPadsTheShuffledOne) {
  // numpy's RandomState(0) on 0 … 9 0 1 would differ in every place from the shuffle of 0 … 9 with two repeated.
  const auto paddle = whole_epoch({.samples = 10, .batch_size = 100, .shuffle = true}, 1);
  EXPECT_THAT(paddle[0], ElementsAre(ElementsAre(2, 8, 4, 9, 1, 6, 7, 3, 0, 5)));
  const auto torch = whole_epoch({.samples = 10, .batch_size = 100, .shuffle = true, .order = Order::torch}, 3);
  EXPECT_THAT(torch[0], ElementsAre(ElementsAre(4, 5, 0, 2)));
  EXPECT_THAT(torch[1], ElementsAre(ElementsAre(1, 3, 8, 4)));
  EXPECT_THAT(torch[2], ElementsAre(ElementsAre(7, 9, 6, 1)));
}

TEST(EpochPlan, TheSeedIsAddedToTheEpoch) {
  SamplerOptions options{.samples = 50, .batch_size = 7, .shuffle = true};
  const auto third = whole_epoch(options, 2, 3);
  options.seed = 2;
  EXPECT_EQ(whole_epoch(options, 2, 1), third);
  EXPECT_NE(whole_epoch(options, 2, 3), third);
}

TEST(EpochPlan, DropLastLeavesOutTheSmallStep) {
  EXPECT_THAT(whole_epoch({.samples = 10, .batch_size = 3, .drop_last = true}, 2)[1],
              ElementsAre(ElementsAre(3, 4, 5)));
  EXPECT_TRUE(whole_epoch({.samples = 3, .batch_size = 3, .drop_last = true}, 2)[0].empty());
}

// 103 samples are padded to 3 x 35, and DataLoader(drop_last=True) finds five whole batches of 7 in 35.
TEST(EpochPlan, DropLastCountsAsTorchsDataLoader) {
  SamplerOptions options{.samples = 103, .batch_size = 7, .drop_last = true, .order = Order::torch};
  EXPECT_EQ(steps_per_epoch(options, 3), 5);
  for (const Batches& batches : whole_epoch(options, 3)) EXPECT_THAT(batches, Each(SizeIs(7)));
  options.order = Order::paddle;
  EXPECT_EQ(steps_per_epoch(options, 3), 5);
}

TEST(EpochPlan, WithoutPaddingTheLastSamplesAreLeftOut) {
  SamplerOptions options{.samples = 7, .batch_size = 4, .drop_last = true, .pad = false, .order = Order::torch};
  EXPECT_EQ(steps_per_epoch(options, 2), 0);
  options.batch_size = 3;
  EXPECT_THAT(whole_epoch(options, 2)[1], ElementsAre(ElementsAre(1, 3, 5)));
  options.order = Order::paddle;
  EXPECT_THAT(whole_epoch(options, 2)[1], ElementsAre(ElementsAre(3, 4, 5)));
}

TEST(EpochPlan, PaddingIsCounted) {
  EXPECT_EQ(EpochPlan({.samples = 7, .shuffle = true}, 0, {{.ranks = 3}}, {0, 3}).padding(), 2);
  EXPECT_EQ(EpochPlan({.samples = 9}, 0, {{.ranks = 3}}, {0, 3}).padding(), 0);
  EXPECT_EQ(EpochPlan({.samples = 7, .pad = false, .order = Order::torch}, 0, {{.ranks = 3}}, {0, 3}).padding(), 0);
}

class RandomPlans : public ::testing::TestWithParam<Order> {};
INSTANTIATE_TEST_SUITE_P(Orders, RandomPlans, ::testing::Values(Order::paddle, Order::torch),
                         [](const auto& order) { return to_string(order.param); });

TEST_P(RandomPlans, EverySampleIsSeenAndAllRanksHaveTheSameSteps) {
  std::mt19937 random(1);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int round = 0; round < 500; ++round) {
    const int ranks = draw(1, 9);
    const SamplerOptions options{
        .samples = draw(1, 200), .batch_size = draw(1, 40), .shuffle = draw(0, 1) == 1, .order = GetParam()};
    SCOPED_TRACE(testing::Message() << options.samples << " samples, batch " << options.batch_size << ", " << ranks
                                    << " ranks, shuffle " << options.shuffle);
    const auto all = whole_epoch(options, ranks, draw(0, 5));
    for (const Batches& batches : all) {
      ASSERT_EQ(static_cast<int64_t>(batches.size()), steps_per_epoch(options, ranks));
      for (size_t step = 0; step < batches.size(); ++step) ASSERT_EQ(batches[step].size(), all[0][step].size());
    }
    const auto counts = counts_of(all);
    ASSERT_EQ(static_cast<int64_t>(counts.size()), options.samples);
    const int64_t most = 1 + (ranks - 1 + options.samples - 1) / options.samples;  // only padding comes twice
    for (const auto& [sample, count] : counts) ASSERT_LE(count, most) << sample;
  }
}

TEST_P(RandomPlans, AStepIsThePartOfTheOrderThatNoSplitChanges) {
  // The union of all ranks' batches of the first steps is a prefix of one order: the one a single rank would walk.
  const SamplerOptions four{.samples = 96, .batch_size = 4, .shuffle = true, .order = GetParam()};
  SamplerOptions one = four;
  one.batch_size = 16;
  const auto all = whole_epoch(four, 4);
  const auto alone = whole_epoch(one, 1);
  for (size_t step = 0; step < 6; ++step) {
    std::vector<int64_t> joined;
    for (const Batches& batches : all) joined.insert(joined.end(), batches[step].begin(), batches[step].end());
    EXPECT_THAT(joined, ::testing::UnorderedElementsAreArray(alone[0][step])) << step;
  }
}

struct Bad {
  SamplerOptions options;
  RankInfo me;
  const char* message;
};

TEST(EpochPlan, NumbersThatMakeNoSenseAreRefused) {
  const Bad cases[] = {
      {{.samples = 0}, {0, 1}, "the dataset has 0 samples"},
      {{.samples = -3}, {0, 1}, "the dataset has -3 samples"},
      {{.samples = int64_t{1} << 32}, {0, 1}, "4294967296 samples are more than the 4294967295"},
      {{.samples = 5, .batch_size = 0}, {0, 1}, "batch_size is 0"},
      {{.samples = 5, .batch_size = -1}, {0, 1}, "batch_size is -1"},
      {{.samples = 5, .batch_size = int64_t{1} << 40}, {0, 1}, "from 1 to 2147483647"},
      {{.samples = 5}, {2, 2}, "rank 2 of 2"},
      {{.samples = 5}, {-1, 2}, "rank -1 of 2"},
      {{.samples = 5}, {0, 0}, "rank 0 of 0"},
  };
  for (const Bad& bad : cases) {
    try {
      check(bad.options, bad.me);
      ADD_FAILURE() << "accepted: " << bad.message;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(bad.message));
    }
  }
}

}  // namespace
}  // namespace trireme::data
