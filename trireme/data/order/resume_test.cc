// Saving and loading a sampler's state, in the same world and in another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "trireme/core/error.h"
#include "trireme/data/order/sampler.h"

namespace trireme::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Batches = std::vector<std::vector<int64_t>>;

/// All ranks of a world, in step.
class World {
 public:
  World(const SamplerOptions& options, int ranks) {
    for (int rank = 0; rank < ranks; ++rank) samplers_.emplace_back(options, RankInfo{rank, ranks});
  }

  void load(const SamplerState& state) {
    for (auto& sampler : samplers_) sampler.load_state(state);
  }

  /// Takes up to `steps` steps of a new loop; by step, the batches of all ranks.
  std::vector<Batches> run(int64_t steps) {
    for (auto& sampler : samplers_) sampler.start();
    std::vector<Batches> taken;
    for (int64_t step = 0; step < steps; ++step) {
      Batches batches;
      for (auto& sampler : samplers_)
        if (auto batch = sampler.next()) batches.push_back(*batch);
      if (batches.empty()) break;
      EXPECT_EQ(batches.size(), samplers_.size()) << "ranks differ in the number of steps";
      taken.push_back(batches);
    }
    return taken;
  }

  std::vector<Batches> run_to_the_end() { return run(1 << 30); }

  /// Rank 0's, which must be everyone's.
  SamplerState state() const {
    for (const auto& sampler : samplers_) EXPECT_EQ(sampler.state(), samplers_[0].state());
    return samplers_[0].state();
  }

  int64_t epoch() const { return samplers_[0].epoch(); }

 private:
  std::vector<DistributedBatchSampler> samplers_;
};

void count(const std::vector<Batches>& steps, std::map<int64_t, int>& counts) {
  for (const Batches& batches : steps)
    for (const auto& batch : batches)
      for (const int64_t sample : batch) ++counts[sample];
}

class Resume : public ::testing::TestWithParam<Order> {
 protected:
  SamplerOptions options(int64_t samples, int64_t batch_size) const {
    return {.samples = samples, .batch_size = batch_size, .shuffle = true, .order = GetParam()};
  }
};
INSTANTIATE_TEST_SUITE_P(Orders, Resume, ::testing::Values(Order::paddle, Order::torch),
                         [](const auto& order) { return to_string(order.param); });

TEST_P(Resume, InTheSameWorldGoesOnAsIfUnbroken) {
  for (const int64_t broken_after : {0, 1, 3, 8, 9}) {  // 9 steps: 101 samples padded to 102
    World unbroken(options(101, 4), 3);
    const auto first = unbroken.run_to_the_end();
    const auto second = unbroken.run_to_the_end();
    ASSERT_EQ(first.size(), 9u);

    World before(options(101, 4), 3);
    before.run(broken_after);
    World after(options(101, 4), 3);
    after.load(parse_sampler_state(to_text(before.state())));
    EXPECT_EQ(after.run_to_the_end(), std::vector<Batches>(first.begin() + broken_after, first.end()));
    EXPECT_EQ(after.epoch(), 1);
    EXPECT_EQ(after.run_to_the_end(), second);
  }
}

TEST_P(Resume, AfterALoopBeginsTheNextEpoch) {
  World unbroken(options(20, 3), 2);
  unbroken.run_to_the_end();
  const SamplerState state = unbroken.state();
  EXPECT_EQ(state.epoch, 1);
  EXPECT_TRUE(state.stages.empty());
  World after(options(20, 3), 2);
  after.load(state);
  EXPECT_EQ(after.run_to_the_end(), unbroken.run_to_the_end());
}

TEST_P(Resume, StateCountsSamplesOfAllRanks) {
  World world(options(100, 4), 3);
  world.run(2);
  EXPECT_THAT(world.state().stages, ElementsAre(Stage{.ranks = 3, .consumed = 24}));
}

TEST_P(Resume, InAnotherWorldSeesTheRestOnce) {
  World before(options(96, 4), 4);
  const auto seen = before.run(3);
  World after(options(96, 4), 2);
  after.load(before.state());
  const auto rest = after.run_to_the_end();
  EXPECT_EQ(rest.size(), 6u);  // 96 - 3 x 4 x 4 = 48 left for 2 x 4 a step
  std::map<int64_t, int> counts;
  count(seen, counts);
  count(rest, counts);
  EXPECT_EQ(counts.size(), 96u);
  for (const auto& [sample, times] : counts) EXPECT_EQ(times, 1) << sample;
  EXPECT_EQ(after.epoch(), 1);
}

TEST_P(Resume, InAnotherWorldKeepsTheOrder) {
  World unbroken(options(96, 4), 4);
  const auto whole = unbroken.run_to_the_end();
  World before(options(96, 4), 4);
  before.run(3);
  SamplerOptions large = options(96, 16);  // one rank with four ranks' batch sees each step's samples at once
  World alone(large, 1);
  alone.load(before.state());
  const auto rest = alone.run_to_the_end();
  ASSERT_EQ(rest.size(), 3u);
  for (size_t step = 0; step < 3; ++step) {
    std::vector<int64_t> joined;
    for (const auto& batch : whole[3 + step]) joined.insert(joined.end(), batch.begin(), batch.end());
    EXPECT_THAT(rest[step][0], ::testing::UnorderedElementsAreArray(joined)) << step;
  }
}

TEST_P(Resume, ThroughAnyWorldsEverySampleIsSeenAndOnlyPaddingTwice) {
  std::mt19937 random(2);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 300; ++round) {
    const int64_t samples = draw(1, 150);
    std::optional<SamplerState> state;
    std::map<int64_t, int> counts;
    int64_t padding = 0;
    int ranks = 1;
    for (int64_t worlds = draw(1, 4); worlds > 0; --worlds) {
      ranks = static_cast<int>(draw(1, 7));
      World world(options(samples, draw(1, 9)), ranks);
      if (state) world.load(parse_sampler_state(to_text(*state)));
      count(world.run(worlds == 1 ? 1 << 30 : draw(0, 8)), counts);
      padding += ranks - 1;
      if (world.epoch() == 1) break;
      state = world.state();
    }
    ASSERT_EQ(static_cast<int64_t>(counts.size()), samples) << "round " << round;
    int64_t total = 0;
    for (const auto& [sample, times] : counts) total += times;
    ASSERT_LE(total - samples, padding) << "round " << round;
  }
}

TEST_P(Resume, ANewWorldThatTakesNoStepLeavesNoTrace) {
  World before(options(50, 4), 2);
  before.run(2);
  const SamplerState state = before.state();
  World idle(options(50, 4), 3);
  idle.load(state);
  EXPECT_EQ(idle.state(), state);
  World after(options(50, 4), 2);
  after.load(idle.state());
  EXPECT_EQ(after.run_to_the_end().size(), 5u);  // 25 a rank, 8 done: 4 4 4 4 1
}

TEST_P(Resume, WithAnotherBatchSize) {
  World before(options(96, 4), 2);
  World after(options(96, 11), 2);
  std::map<int64_t, int> counts;
  count(before.run(5), counts);
  after.load(before.state());
  count(after.run_to_the_end(), counts);
  EXPECT_EQ(counts.size(), 96u);
  for (const auto& [sample, times] : counts) EXPECT_EQ(times, 1) << sample;
}

TEST_P(Resume, TakesTheSeedOfTheState) {
  SamplerOptions seeded = options(40, 4);
  seeded.seed = 99;
  World before(seeded, 2);
  before.run(1);
  World after(options(40, 4), 2);
  after.load(before.state());
  World unbroken(seeded, 2);
  const auto whole = unbroken.run_to_the_end();
  EXPECT_EQ(after.run_to_the_end(), std::vector<Batches>(whole.begin() + 1, whole.end()));
}

TEST(ResumePadding, WhatWasConsumedTwiceStaysAndTheRestComesOnce) {
  // 7 samples, 4 ranks: 0 1 2 3 | 4 5 6 0. One step sees 0 to 3, so the repeated 0 is dropped by whoever goes on.
  World before({.samples = 7, .batch_size = 1}, 4);
  before.run(1);
  World after({.samples = 7, .batch_size = 1}, 2);
  after.load(before.state());
  EXPECT_THAT(after.run_to_the_end(), ElementsAre(Batches{{4}, {5}}, Batches{{6}, {4}}));
}

TEST(ResumePadding, WhatIsCutOffIsForTheNextWorld) {
  const SamplerOptions options{.samples = 7, .batch_size = 1, .pad = false, .order = Order::torch};
  World before(options, 4);
  EXPECT_EQ(before.run(1).size(), 1u);
  World after(options, 3);
  after.load(before.state());
  EXPECT_THAT(after.run_to_the_end(), ElementsAre(Batches{{4}, {5}, {6}}));
}

void expect_refused(const SamplerState& state, const char* message) {
  DistributedBatchSampler sampler({.samples = 10, .batch_size = 2, .shuffle = true}, {0, 2});
  const SamplerState untouched = sampler.state();
  try {
    sampler.load_state(state);
    ADD_FAILURE() << "accepted; expected: " << message;
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr(message));
  }
  EXPECT_EQ(sampler.state(), untouched);
}

TEST(ResumeRefusals, NameBothSides) {
  const SamplerState good{.shuffle = true, .samples = 10, .epoch = 1, .stages = {{.ranks = 2, .consumed = 4}}};
  auto with = [&](auto change) {
    SamplerState state = good;
    change(state);
    return state;
  };
  expect_refused(with([](auto& s) { s.samples = 11; }), "a dataset of 11 samples, this one has 10");
  expect_refused(with([](auto& s) { s.order = Order::torch; }), "its order is torch's, this sampler's is paddle's");
  expect_refused(with([](auto& s) { s.shuffle = false; }), "that does not shuffle, this one shuffles");
  expect_refused(with([](auto& s) { s.epoch = -1; }), "its epoch is -1");
  expect_refused(with([](auto& s) { s.stages[0].consumed = 12; }), "consumed 12 samples, but there were 10");
  expect_refused(with([](auto& s) { s.stages[0].consumed = 3; }), "consumed 3 samples");
  expect_refused(with([](auto& s) {
                   s.stages = {{.ranks = 5, .consumed = 5}, {.ranks = 2, .consumed = 8}};
                 }),
                 "2 ranks have consumed 8 samples, but there were 6");
}

}  // namespace
}  // namespace trireme::data
