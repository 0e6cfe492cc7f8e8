#include "trireme/data/order/multi_scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "trireme/core/error.h"
#include "trireme/core/test_support.h"
#include "trireme/data/order/sampler.h"

namespace trireme::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// PPLCNetV2_base's configuration.
const MultiScale kScales{.scales = {160, 192, 224, 288, 320}};

TEST(MultiScale, LargeImagesComeInSmallBatches) {
  EXPECT_THAT(scale_choices(kScales, 500),
              ElementsAre(ScaledBatch{160, 500}, ScaledBatch{192, 347}, ScaledBatch{224, 255}, ScaledBatch{288, 154},
                          ScaledBatch{320, 125}));
}

TEST(MultiScale, SizesAreMultiplesOfTheFactor) {
  EXPECT_THAT(scale_choices({.scales = {100, 1000}}, 2), ElementsAre(ScaledBatch{96, 2}, ScaledBatch{992, 1}));
  EXPECT_THAT(scale_choices({.scales = {100, 50}, .divided_factor = 25}, 2),
              ElementsAre(ScaledBatch{100, 2}, ScaledBatch{50, 8}));
}

TEST(MultiScale, EvaluationKeepsTheFirstSize) {
  EXPECT_THAT(scale_choices({.scales = {100, 192}, .is_training = false}, 7), ElementsAre(ScaledBatch{100, 7}));
}

SamplerOptions options(int64_t samples, bool drop_last = false) {
  return {
      .samples = samples, .batch_size = 8, .shuffle = true, .drop_last = drop_last, .seed = 5, .multi_scale = kScales};
}

/// The picks of one loop over all ranks together, step by step.
std::vector<std::vector<Pick>> epoch(const SamplerOptions& options, int ranks, int64_t number,
                                     const std::vector<Stage>& stages) {
  std::vector<std::vector<Pick>> steps;
  for (int rank = 0; rank < ranks; ++rank) {
    const EpochPlan plan(options, number, stages, {rank, ranks});
    steps.resize(static_cast<size_t>(plan.steps()));
    for (size_t step = 0; step < steps.size(); ++step) steps[step].push_back(plan.pick(static_cast<int64_t>(step)));
  }
  return steps;
}

TEST(MultiScale, AllRanksHaveTheSameSizeAndSeeEverySample) {
  std::multiset<int64_t> seen;
  std::set<int64_t> sizes;
  const auto steps = epoch(options(600), 3, 0, {{.ranks = 3}});
  for (const auto& step : steps) {
    sizes.insert(step[0].image_size);
    for (const Pick& pick : step) {
      EXPECT_EQ(pick.image_size, step[0].image_size);
      EXPECT_EQ(pick.indices.size(), step[0].indices.size());
      seen.insert(pick.indices.begin(), pick.indices.end());
    }
  }
  EXPECT_EQ(seen.size(), 600u);
  EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 600u);
  EXPECT_THAT(sizes, ElementsAre(160, 192, 224, 288, 320));
  EXPECT_EQ(steps_per_epoch(options(600), 3), static_cast<int64_t>(steps.size()));
}

TEST(MultiScale, EveryEpochHasAsManySteps) {
  for (const bool drop_last : {false, true}) {
    const int64_t steps = steps_per_epoch(options(100, drop_last), 2);
    for (int64_t number = 0; number < 5; ++number)
      EXPECT_EQ(EpochPlan(options(100, drop_last), number, {{.ranks = 2}}, {0, 2}).steps(), steps);
  }
  const EpochPlan cut(options(100, true), 0, {{.ranks = 2}}, {0, 2});
  const auto choices = scale_choices(kScales, 8);
  for (int64_t step = 0; step < cut.steps(); ++step) {
    const Pick pick = cut.pick(step);
    EXPECT_THAT(choices, ::testing::Contains(ScaledBatch{pick.image_size, static_cast<int64_t>(pick.indices.size())}));
  }
}

TEST(MultiScale, TheRestOfAnEpochIsWhatWouldHaveCome) {
  const EpochPlan whole(options(300), 1, {{.ranks = 2}}, {1, 2});
  for (int64_t taken = 0; taken <= whole.steps(); ++taken) {
    const EpochPlan rest(options(300), 1, {{.ranks = 2, .consumed = whole.consumed_before(taken)}}, {1, 2});
    ASSERT_EQ(rest.steps(), whole.steps() - taken);
    for (int64_t step = 0; step < rest.steps(); ++step) {
      EXPECT_EQ(rest.pick(step).indices, whole.pick(taken + step).indices);
      EXPECT_EQ(rest.pick(step).image_size, whole.pick(taken + step).image_size);
    }
  }
}

TEST(MultiScale, NonsenseIsNamed) {
  const auto message = [](MultiScale scales) -> std::string {
    return refusal([&] { DistributedBatchSampler({.samples = 1, .multi_scale = std::move(scales)}, {0, 1}); });
  };
  EXPECT_THAT(message({.scales = {224, 31}}), HasSubstr("an image size is 31; it must be from 32 to 65536"));
  EXPECT_THAT(message({.scales = {0}, .is_training = false}), HasSubstr("an image size is 0"));
  EXPECT_THAT(message({.scales = {224}, .divided_factor = 0}), HasSubstr("divided_factor is 0"));
}

TEST(Draws, BelongToTheSampleAndTheEpoch) {
  const SamplerOptions plain{.samples = 12, .batch_size = 3, .shuffle = true, .seed = 5};
  std::vector<uint64_t> alone(12), together(12);
  for (const auto& step : epoch(plain, 1, 4, {{.ranks = 1}}))
    for (size_t i = 0; i < step[0].indices.size(); ++i)
      alone[static_cast<size_t>(step[0].indices[i])] = step[0].draws[i];
  for (const auto& step : epoch(plain, 2, 4, {{.ranks = 1, .consumed = 6}, {.ranks = 2}}))
    for (const Pick& pick : step)
      for (size_t i = 0; i < pick.indices.size(); ++i) {
        EXPECT_EQ(pick.draws[i], alone[static_cast<size_t>(pick.indices[i])]);
        together[static_cast<size_t>(pick.indices[i])] = pick.draws[i];
      }
  EXPECT_EQ(std::count(together.begin(), together.end(), 0u), 6);
  EXPECT_EQ(std::set<uint64_t>(alone.begin(), alone.end()).size(), 12u);
  SamplerOptions other = plain;
  other.seed = 6;
  EXPECT_NE(epoch(plain, 1, 5, {{.ranks = 1}})[0][0].draw, epoch(plain, 1, 4, {{.ranks = 1}})[0][0].draw);
  EXPECT_NE(mix(5, 4, 0), mix(6, 3, 0));
  EXPECT_NE(epoch(other, 1, 4, {{.ranks = 1}})[0][0].draw, epoch(plain, 1, 4, {{.ranks = 1}})[0][0].draw);
}

TEST(Draws, OfABatchDifferFromRankToRank) {
  const auto steps = epoch({.samples = 12, .batch_size = 3}, 2, 0, {{.ranks = 2}});
  std::set<uint64_t> draws;
  for (const auto& step : steps)
    for (const Pick& pick : step) draws.insert(pick.draw);
  EXPECT_EQ(draws.size(), 4u);
}

}  // namespace
}  // namespace trireme::data
