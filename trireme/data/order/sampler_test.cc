#include "trireme/data/order/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/core/error.h"

namespace trireme::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Batches = std::vector<std::vector<int64_t>>;

Batches loop(DistributedBatchSampler& sampler) {
  Batches batches;
  for (const auto& batch : sampler) batches.push_back(batch);
  return batches;
}

DistributedBatchSampler shuffled(int64_t samples = 50) {
  return DistributedBatchSampler({.samples = samples, .batch_size = 4, .shuffle = true}, {0, 2});
}

TEST(Sampler, YieldsThisRanksBatches) {
  DistributedBatchSampler sampler({.samples = 10, .batch_size = 3}, {1, 2});
  EXPECT_EQ(sampler.size(), 2);
  EXPECT_THAT(loop(sampler), ElementsAre(ElementsAre(3, 4, 5), ElementsAre(8, 9)));
  EXPECT_THAT(loop(sampler), ElementsAre(ElementsAre(3, 4, 5), ElementsAre(8, 9)));
}

TEST(Sampler, EachLoopIsTheNextEpoch) {
  auto sampler = shuffled();
  const Batches first = loop(sampler);
  EXPECT_EQ(sampler.epoch(), 1);
  const Batches second = loop(sampler);
  EXPECT_NE(first, second);
  auto other = shuffled();
  other.set_epoch(1);
  EXPECT_EQ(loop(other), second);
  EXPECT_EQ(other.epoch(), 2);
}

TEST(Sampler, SetEpochRepeatsAnEpoch) {
  auto sampler = shuffled();
  const Batches first = loop(sampler);
  sampler.set_epoch(0);
  EXPECT_EQ(loop(sampler), first);
  EXPECT_THROW(sampler.set_epoch(-1), UsageError);
}

TEST(Sampler, ALoopLeftEarlyCountsAsAnEpoch) {
  auto sampler = shuffled();
  for (const auto& batch : sampler) {
    EXPECT_EQ(batch.size(), 4u);
    EXPECT_EQ(sampler.epoch(), 0);
    break;
  }
  auto other = shuffled();
  other.set_epoch(1);
  EXPECT_EQ(loop(sampler), loop(other));
}

TEST(Sampler, SetEpochEndsTheLoopThatRuns) {
  auto sampler = shuffled();
  int batches = 0;
  for (const auto& batch : sampler) {
    batches += !batch.empty();
    sampler.set_epoch(4);
  }
  EXPECT_EQ(batches, 1);
  EXPECT_EQ(sampler.epoch(), 4);
}

TEST(Sampler, NextOutsideOfALoopGivesNothing) {
  auto sampler = shuffled();
  EXPECT_EQ(sampler.next(), std::nullopt);
  EXPECT_EQ(sampler.epoch(), 0);
}

TEST(Sampler, RefusesNonsense) {
  EXPECT_THROW(DistributedBatchSampler({.samples = 0}, {0, 1}), UsageError);
  EXPECT_THROW(DistributedBatchSampler({.samples = 1}, {3, 2}), UsageError);
}

TEST(SamplerState, IsTextAndBack) {
  const SamplerState state{.order = Order::torch,
                           .shuffle = true,
                           .seed = ~uint64_t{0},
                           .samples = 60000,
                           .epoch = 3,
                           .stages = {{.ranks = 4, .consumed = 1280}, {.ranks = 2, .consumed = 64}}};
  EXPECT_EQ(to_text(state), "sampler 1 order=torch shuffle=1 seed=-1 samples=60000 epoch=3 stages=4:1280,2:64");
  EXPECT_EQ(parse_sampler_state(to_text(state)), state);
  EXPECT_EQ(state.consumed(), 1344);
  EXPECT_EQ(parse_sampler_state(to_text(SamplerState{})), SamplerState{});
}

TEST(SamplerState, DamagedTextIsRefusedByItsDamagedPart) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "''"},
      {"sampler 2 order=torch shuffle=1 seed=1 samples=6 epoch=3 stages=none", "'sampler 2'"},
      {"sampler 1 order=torch shuffle=1 seed=1 samples=6 epoch=3", "'sampler 1'"},
      {"sampler 1 order=horovod shuffle=1 seed=1 samples=6 epoch=3 stages=none", "'order=horovod'"},
      {"sampler 1 order=torch shuffle=2 seed=1 samples=6 epoch=3 stages=none", "'shuffle=2'"},
      {"sampler 1 order=torch shuffle=1 sead=1 samples=6 epoch=3 stages=none", "'sead=1'"},
      {"sampler 1 order=torch shuffle=1 seed=1 samples=6 epoch=-3 stages=none", "'epoch=-3'"},
      {"sampler 1 order=torch shuffle=1 seed=1 samples=6 epoch=3 stages=", "'stages='"},
      {"sampler 1 order=torch shuffle=1 seed=1 samples=6 epoch=3 stages=4", "'stages=4'"},
      {"sampler 1 order=torch shuffle=1 seed=1 samples=6 epoch=3 stages=0:0", "'stages=0:0'"},
      {"sampler 1 order=torch shuffle=1 seed=1 samples=6 epoch=3 stages=99999999:0", "'stages=99999999:0'"},
  };
  for (const auto& [text, part] : cases) {
    try {
      parse_sampler_state(text);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(std::string(part) + " is not understood"));
    }
  }
}

}  // namespace
}  // namespace trireme::data
