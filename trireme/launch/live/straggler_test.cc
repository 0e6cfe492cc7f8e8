#include "trireme/launch/live/straggler.h"

#include <gtest/gtest.h>

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using watch::Phase;

// Ranks that need 10 ms for data, 100 ms for the forward pass and 100 ms for the backward pass.
std::vector<RankView> job(int ranks) {
  std::vector<RankView> views;
  for (int rank = 0; rank < ranks; ++rank)
    views.push_back(
        {.rank = rank, .steps_per_second = 4, .phases = {.data = 10, .forward = 100, .backward = 100, .optimizer = 5}});
  return views;
}

TEST(Straggler, NoneAmongEqualRanks) {
  auto ranks = job(4);
  EXPECT_FALSE(find_straggler(ranks));
  ranks[1].phases.forward = 110;
  EXPECT_FALSE(find_straggler(ranks));
  EXPECT_FALSE(find_straggler({}));
  EXPECT_FALSE(find_straggler(job(1)));
}

TEST(Straggler, InTheForwardPass) {
  auto ranks = job(4);
  ranks[3].phases.forward = 210;
  const auto found = find_straggler(ranks);
  ASSERT_TRUE(found);
  EXPECT_EQ(describe(*found), "rank 3 is slower than the others: 210 ms a step in the forward pass, the others 100 ms");
}

TEST(Straggler, TheLargestDelayCounts) {
  auto ranks = job(2);
  ranks[0].phases.data = 100;
  ranks[1].phases.forward = 300;
  const auto found = find_straggler(ranks);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->phase, Phase::forward);
}

// The others wait for rank 0 in their backward passes, whose own time is what is left.
TEST(Straggler, ADelayThatTheBackwardPassShowsTooIsThatOfTheData) {
  auto ranks = job(2);
  ranks[0].phases = {.data = 260, .forward = 100, .backward = 500, .optimizer = 5};
  ranks[1].phases = {.data = 10, .forward = 100, .backward = 245, .optimizer = 5};
  const auto found = find_straggler(ranks);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 0);
  EXPECT_EQ(found->phase, Phase::data);
}

TEST(Straggler, SmallDelaysAreNoise) {
  auto ranks = job(2);
  ranks[1].phases.data = 25;
  EXPECT_FALSE(find_straggler(ranks)) << "15 ms";
  ranks[1].phases.data = 45;
  EXPECT_FALSE(find_straggler(ranks)) << "35 ms of a step of 250 ms";
  ranks[1].phases.data = 80;
  EXPECT_TRUE(find_straggler(ranks));
}

TEST(Straggler, TwoSlowRanksAreNoStraggler) {
  auto ranks = job(4);
  ranks[2].phases.forward = ranks[3].phases.forward = 300;
  EXPECT_FALSE(find_straggler(ranks));
}

TEST(Straggler, NothingWhileARankIsNotKnown) {
  auto ranks = job(3);
  ranks[1].phases.forward = 400;
  ranks[2].phases = {};
  EXPECT_FALSE(find_straggler(ranks));
}

TEST(StragglerWatch, SaysItAfterAWhileAndAtGrowingIntervals) {
  StragglerWatch watch;
  const auto start = Clock::now();
  auto ranks = job(2);
  ranks[1].phases.data = 200;
  int lines = 0;
  for (auto second = 0s; second < 2000s; second += 1s) {
    const auto line = watch.note(ranks, start + second);
    EXPECT_FALSE(second < 10s && line);
    lines += line.has_value();
  }
  EXPECT_EQ(lines, 3) << "after 10 s, 310 s and 1210 s";
  EXPECT_FALSE(watch.note(job(2), start + 5000s));
  EXPECT_FALSE(watch.note(ranks, start + 5001s)) << "it must last again";
  EXPECT_TRUE(watch.note(ranks, start + 5011s));
}

}  // namespace
}  // namespace trireme::launch
