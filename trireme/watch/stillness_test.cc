#include "trireme/watch/stillness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::watch {
namespace {

using Kind = Verdict::Kind;
using ::testing::HasSubstr;

RankSnapshot rank_in(int rank, Phase phase, int64_t seconds) {
  return {.rank = rank,
          .state = ProcessState::sleeping,
          .step = 16,
          .phase = phase,
          .phase_ms = seconds * 1000,
          .still_ms = seconds * 1000};
}

RankSnapshot stopped(int rank, int64_t seconds) {
  RankSnapshot snapshot = rank_in(rank, Phase::unknown, 0);
  snapshot.state = ProcessState::stopped;
  snapshot.stopped_ms = seconds * 1000;
  return snapshot;
}

RankSnapshot with_state(RankSnapshot rank, ProcessState state) {
  rank.state = state;
  return rank;
}

Verdict minute(const std::vector<RankSnapshot>& ranks) {
  return judge_stillness(ranks, {.still_ms = 60'000, .world_size = static_cast<int>(ranks.size())});
}

TEST(Stillness, AllRanksLoadData) {
  const Verdict verdict = minute({rank_in(1, Phase::data, 61), rank_in(0, Phase::data, 62)});
  EXPECT_EQ(verdict.kind, Kind::still);
  EXPECT_FALSE(verdict.proven);
  EXPECT_EQ(verdict.culprit, 0);
  EXPECT_EQ(verdict.words, "nothing has moved since 61 s: ranks 0, 1 (loading data for 62 s of step 16, sleeping)");
  EXPECT_THAT(verdict.advice, HasSubstr("dataset"));
  EXPECT_EQ(verdict.details.size(), 2u);
}

TEST(Stillness, TheOnlyRank) {
  const Verdict verdict = minute({rank_in(0, Phase::forward, 61)});
  EXPECT_EQ(verdict.kind, Kind::still);
  EXPECT_EQ(verdict.culprit, 0);
  EXPECT_THAT(verdict.advice, HasSubstr("watch::report()"));
}

TEST(Stillness, OneRankThatMovesIsEnough) {
  EXPECT_EQ(minute({rank_in(0, Phase::data, 61), rank_in(1, Phase::data, 59)}).kind, Kind::none);
  EXPECT_EQ(minute({stopped(0, 61), rank_in(1, Phase::forward, 1)}).kind, Kind::none);
}

TEST(Stillness, ARankThatWasStoppedAfterTheOthersHadEnded) {
  const Verdict verdict = minute({with_state(rank_in(0, Phase::unknown, 1), ProcessState::exited), stopped(1, 61)});
  EXPECT_EQ(verdict.kind, Kind::still);
  EXPECT_FALSE(verdict.proven) << "nobody waits for it: it may go on";
  EXPECT_EQ(verdict.culprit, 1);
  EXPECT_EQ(verdict.words, "nothing has moved since 61 s: rank 1 (stopped in step 16); the others have ended");
  EXPECT_THAT(verdict.advice, HasSubstr("kill -CONT"));
}

TEST(Stillness, AStoppedRankIsTheCulprit) {
  EXPECT_EQ(minute({rank_in(0, Phase::data, 70), stopped(1, 61)}).culprit, 1);
  EXPECT_EQ(minute({rank_in(0, Phase::forward, 70), rank_in(1, Phase::data, 61)}).culprit, 1);
}

TEST(Stillness, AnEvaluationOrASaveMayBeLong) {
  for (const Phase phase : {Phase::evaluation, Phase::save}) {
    EXPECT_EQ(minute({rank_in(0, phase, 500)}).kind, Kind::none);
    EXPECT_EQ(minute({rank_in(0, phase, 601)}).kind, Kind::still);
  }
}

TEST(Stillness, NotWatched) {
  RankSnapshot silent = rank_in(0, Phase::unknown, 0);
  silent.still_ms = -1;
  EXPECT_EQ(minute({silent, rank_in(1, Phase::data, 61)}).kind, Kind::none) << "a program that records nothing";
  EXPECT_EQ(minute({with_state(rank_in(0, Phase::forward, 61), ProcessState::traced)}).kind, Kind::none);
  EXPECT_EQ(minute({with_state(rank_in(0, Phase::forward, 61), ProcessState::exited)}).kind, Kind::none);
  EXPECT_EQ(minute({}).kind, Kind::none);
  EXPECT_EQ(judge_stillness({rank_in(0, Phase::data, 61)}, {.still_ms = 60'000, .world_size = 2}).kind, Kind::none)
      << "nothing is known about rank 1";
}

}  // namespace
}  // namespace trireme::watch
