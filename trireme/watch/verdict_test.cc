#include "trireme/watch/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::watch {
namespace {

using Kind = Verdict::Kind;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kWorld = 1;

Call all_reduce(uint64_t number, int64_t seconds, uint64_t elements = 1000) {
  return {.group = kWorld,
          .number = number,
          .operation = "all_reduce",
          .dtype = "float",
          .reduce = "sum",
          .elements = elements,
          .digest = elements,
          .sizes = {elements},
          .size_count = 1,
          .blocking = true,
          .age_ms = seconds * 1000};
}

Call broadcast(uint64_t number, int64_t seconds, uint64_t elements = 10) {
  Call call = all_reduce(number, seconds, elements);
  call.operation = "broadcast";
  call.reduce = "";
  call.root = 0;
  return call;
}

Call message(const char* operation, int peer, int64_t seconds) {
  return {.group = kWorld, .operation = operation, .peer = peer, .blocking = true, .age_ms = seconds * 1000};
}

Call ended(Call call) {
  call.open = false;
  return call;
}

// A job of `size` ranks, each of which has begun `begun` collectives of the world and computes.
std::vector<RankSnapshot> job(int size, uint64_t begun) {
  std::vector<RankSnapshot> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(
        {.rank = rank,
         .state = ProcessState::running,
         .groups = {{.id = kWorld, .world = true, .size = static_cast<uint32_t>(size), .begun = begun + 1}}});
  return ranks;
}

void waits(RankSnapshot& rank, const Call& call) {
  if (call.open) rank.state = ProcessState::sleeping;
  rank.calls.push_back(call);
  for (GroupView& group : rank.groups)
    if (group.id == call.group && !call.is_message()) group.begun = call.number + 1;
}

Verdict after_minute(const std::vector<RankSnapshot>& ranks) {
  return judge(ranks, {.waited_ms = 60'000});
}

TEST(Verdict, NoneWhileNobodyWaitsLongEnough) {
  auto ranks = job(2, 16);
  EXPECT_EQ(after_minute(ranks).kind, Kind::none);
  waits(ranks[0], all_reduce(17, 59));
  EXPECT_EQ(after_minute(ranks).kind, Kind::none);
  EXPECT_EQ(judge({}, {}).kind, Kind::none);
}

TEST(Verdict, AStoppedRank) {
  auto ranks = job(3, 16);
  waits(ranks[0], all_reduce(17, 62));
  waits(ranks[2], all_reduce(17, 61));
  ranks[1].state = ProcessState::stopped;
  ranks[1].stopped_ms = 63'000;
  const Verdict verdict = after_minute(ranks);
  EXPECT_EQ(verdict.kind, Kind::stopped);
  EXPECT_TRUE(verdict.proven);
  EXPECT_EQ(verdict.culprit, 1);
  EXPECT_THAT(verdict.waiting, ElementsAre(0, 2));
  EXPECT_EQ(verdict.words,
            "ranks 0, 2 wait in all_reduce #17 float[1000] sum of group 0 since 62 s for rank 1 (stopped)");
  EXPECT_EQ(verdict.fault,
            "is stopped while ranks 0, 2 wait for it in all_reduce #17 float[1000] sum of group 0 since 62 s");
}

TEST(Verdict, AShortStopProvesNothing) {
  auto ranks = job(2, 16);
  waits(ranks[0], all_reduce(17, 62));
  ranks[1].state = ProcessState::stopped;
  ranks[1].stopped_ms = 5'000;
  const Verdict verdict = after_minute(ranks);
  EXPECT_EQ(verdict.kind, Kind::stopped);
  EXPECT_FALSE(verdict.proven);
  EXPECT_EQ(verdict.culprit, 1);
}

TEST(Verdict, ARankStoppedInsideTheCall) {
  auto ranks = job(2, 16);
  waits(ranks[0], all_reduce(17, 62));
  waits(ranks[1], all_reduce(17, 62));
  ranks[1].state = ProcessState::stopped;
  ranks[1].stopped_ms = 62'000;
  const Verdict verdict = after_minute(ranks);
  EXPECT_EQ(verdict.kind, Kind::stopped);
  EXPECT_TRUE(verdict.proven);
  EXPECT_EQ(verdict.culprit, 1);
}

TEST(Verdict, AJobWhoseRanksAreAllStoppedDoesNotHang) {
  auto ranks = job(2, 16);
  for (RankSnapshot& rank : ranks) {
    waits(rank, all_reduce(17, 100));
    rank.state = ProcessState::stopped;
    rank.stopped_ms = 100'000;
  }
  EXPECT_EQ(after_minute(ranks).kind, Kind::none);
}

TEST(Verdict, ARankThatHasEnded) {
  auto ranks = job(2, 16);
  waits(ranks[0], all_reduce(17, 62));
  ranks[1].state = ProcessState::exited;
  const Verdict verdict = after_minute(ranks);
  EXPECT_EQ(verdict.kind, Kind::gone);
  EXPECT_TRUE(verdict.proven);
  EXPECT_EQ(verdict.culprit, 1);
}

TEST(Verdict, ADebuggerIsNotAHang) {
  auto ranks = job(3, 16);
  waits(ranks[0], all_reduce(17, 62));
  ranks[1].state = ProcessState::traced;
  EXPECT_FALSE(after_minute(ranks).proven);
  EXPECT_EQ(after_minute(ranks).culprit, 1);
  EXPECT_THAT(after_minute(ranks).words, HasSubstr("for rank 1 (in a debugger)"));
  ranks[2].state = ProcessState::stopped;
  ranks[2].stopped_ms = 62'000;
  EXPECT_FALSE(after_minute(ranks).proven);
  EXPECT_EQ(after_minute(ranks).culprit, 2);
  EXPECT_THAT(after_minute(ranks).advice, HasSubstr("Rank 1 is in a debugger"));
}

TEST(Verdict, DifferentOperationsUnderOneNumber) {
  auto ranks = job(2, 16);
  waits(ranks[0], all_reduce(17, 61));
  waits(ranks[1], broadcast(17, 61));
  const Verdict verdict = after_minute(ranks);
  EXPECT_EQ(verdict.kind, Kind::mismatch);
  EXPECT_TRUE(verdict.proven);
  EXPECT_EQ(verdict.culprit, 1);
  EXPECT_THAT(verdict.waiting, ElementsAre(0));
  EXPECT_EQ(verdict.words,
            "the ranks are in different operations of group 0 since 61 s: rank 0: all_reduce #17 float[1000] sum, "
            "rank 1: broadcast #17 float[10] with root 0");
}

TEST(Verdict, TheMinorityIsToBlame) {
  auto ranks = job(3, 16);
  waits(ranks[0], broadcast(17, 61));
  waits(ranks[1], all_reduce(17, 61));
  waits(ranks[2], all_reduce(17, 61));
  EXPECT_EQ(after_minute(ranks).culprit, 0);
  EXPECT_THAT(after_minute(ranks).waiting, ElementsAre(1, 2));
}

TEST(Verdict, DifferentShapes) {
  auto ranks = job(2, 16);
  waits(ranks[0], all_reduce(17, 61, 1000));
  waits(ranks[1], all_reduce(17, 61, 999));
  EXPECT_EQ(after_minute(ranks).kind, Kind::mismatch);
}

TEST(Verdict, ARankThatWentOnAfterAnotherOperation) {
  auto ranks = job(2, 16);
  waits(ranks[0], all_reduce(17, 61));
  waits(ranks[1], ended(broadcast(17, 61)));
  waits(ranks[1], all_reduce(18, 61));
  const Verdict verdict = after_minute(ranks);
  EXPECT_EQ(verdict.kind, Kind::mismatch);
  EXPECT_THAT(verdict.words, AllOf(HasSubstr("rank 0: all_reduce #17"), HasSubstr("rank 1: broadcast #17")));
}

TEST(Verdict, TheFirstOfSeveralDifferences) {
  auto ranks = job(3, 16);
  waits(ranks[0], all_reduce(17, 61));
  waits(ranks[1], ended(broadcast(17, 61)));
  waits(ranks[1], broadcast(18, 61));
  waits(ranks[2], ended(broadcast(17, 61)));
  waits(ranks[2], all_reduce(18, 61));
  EXPECT_EQ(after_minute(ranks).culprit, 0);
}

TEST(Verdict, GroupsUsedInDifferentOrder) {
  auto ranks = job(2, 16);
  for (RankSnapshot& rank : ranks) rank.groups.push_back({.id = 2, .world = true, .size = 2, .again = 1, .begun = 5});
  waits(ranks[0], all_reduce(17, 61));
  Call other = all_reduce(5, 61);
  other.group = 2;
  waits(ranks[1], other);
  const Verdict verdict = after_minute(ranks);
  EXPECT_EQ(verdict.kind, Kind::deadlock);
  EXPECT_TRUE(verdict.proven);
  EXPECT_THAT(verdict.words, AllOf(HasSubstr("rank 0 waits in all_reduce #17 float[1000] sum of group 0 for rank 1"),
                                   HasSubstr("of the group of ranks 0, 1 (#1) for rank 0")));
  // In the background: the main thread may still call what the other rank waits for.
  ranks[1].calls.back().blocking = false;
  const Verdict background = after_minute(ranks);
  EXPECT_EQ(background.kind, Kind::deadlock);
  EXPECT_FALSE(background.proven);
  EXPECT_FALSE(background.culprit);
  EXPECT_THAT(background.waiting, ElementsAre(0, 1));
  EXPECT_EQ(background.words, verdict.words);
  EXPECT_THAT(background.advice, HasSubstr("the same backwards"));
}

TEST(Verdict, ACycleOfThreeGroupsAndAVictim) {
  auto ranks = job(4, 0);
  for (int i = 0; i < 3; ++i) {
    const int next = (i + 1) % 3;
    const uint64_t id = 10 + static_cast<uint64_t>(i);
    for (const int member : {i, next})
      ranks[static_cast<size_t>(member)].groups.push_back(
          {.id = id, .size = 2, .ranks = {std::min(i, next), std::max(i, next)}, .begun = 1});
  }
  for (size_t i = 0; i < 3; ++i) {
    Call call = all_reduce(1, 61);
    call.group = 10 + i;
    waits(ranks[i], call);
  }
  waits(ranks[3], all_reduce(1, 90));
  const Verdict verdict = after_minute(ranks);
  EXPECT_EQ(verdict.kind, Kind::deadlock);
  EXPECT_TRUE(verdict.proven);
  EXPECT_EQ(verdict.culprit, 0);
}

TEST(Verdict, TwoRanksThatReceiveFromEachOther) {
  auto ranks = job(2, 16);
  waits(ranks[0], message("recv", 1, 61));
  waits(ranks[1], message("recv", 0, 61));
  EXPECT_EQ(after_minute(ranks).kind, Kind::deadlock);
  ranks[1].calls.back().operation = "send";
  EXPECT_EQ(after_minute(ranks).kind, Kind::inside) << "both are in one message";
}

TEST(Verdict, NewGroupWithDifferentRanks) {
  auto ranks = job(3, 16);
  ranks[0].groups.push_back({.id = 2, .size = 2, .ranks = {0, 1}});
  ranks[1].groups.push_back({.id = 3, .size = 3, .ranks = {0, 1, 2}});
  waits(ranks[0], {.group = 2, .operation = "new_group", .blocking = true, .age_ms = 61'000});
  waits(ranks[1], {.group = 3, .operation = "new_group", .blocking = true, .age_ms = 61'000});
  const Verdict verdict = after_minute(ranks);
  EXPECT_EQ(verdict.kind, Kind::deadlock);
  EXPECT_TRUE(verdict.proven);
}

TEST(Verdict, ARankInAnEndlessLoop) {
  auto ranks = job(2, 16);
  waits(ranks[0], all_reduce(17, 61));
  waits(ranks[1], ended(all_reduce(16, 61)));
  const Verdict verdict = after_minute(ranks);
  EXPECT_EQ(verdict.kind, Kind::busy);
  EXPECT_FALSE(verdict.proven);
  EXPECT_EQ(verdict.culprit, 1);
  EXPECT_THAT(verdict.words, HasSubstr("for rank 1 (running)"));
  EXPECT_THAT(verdict.advice, AllOf(HasSubstr("GLOG_v=3"), HasSubstr("FLAGS_benchmark=1")));
  EXPECT_THAT(verdict.details.back(), HasSubstr("its last call was all_reduce #16"));
}

TEST(Verdict, ALoaderThatStalls) {
  auto ranks = job(2, 16);
  waits(ranks[0], all_reduce(17, 61));
  ranks[1] = {.rank = 1,
              .state = ProcessState::sleeping,
              .step = 16,
              .phase = Phase::data,
              .phase_ms = 61'000,
              .groups = ranks[1].groups};
  const Verdict verdict = after_minute(ranks);
  EXPECT_EQ(verdict.kind, Kind::busy);
  EXPECT_FALSE(verdict.proven);
  EXPECT_THAT(verdict.words, HasSubstr("for rank 1 (loading data for 61 s of step 16, sleeping)"));
  EXPECT_THAT(verdict.advice, HasSubstr("dataset"));
}

// Rank 0 waits for rank 1, which waits for rank 2, which computes.
TEST(Verdict, TheRankAtTheEndOfTheChain) {
  auto ranks = job(3, 16);
  for (const size_t member : {size_t{1}, size_t{2}})
    ranks[member].groups.push_back({.id = 2, .size = 2, .ranks = {1, 2}, .begun = 5});
  waits(ranks[0], all_reduce(17, 90));
  Call call = all_reduce(5, 61);
  call.group = 2;
  waits(ranks[1], call);
  const Verdict verdict = after_minute(ranks);
  EXPECT_EQ(verdict.kind, Kind::busy);
  EXPECT_EQ(verdict.culprit, 2);
}

TEST(Verdict, AllRanksInside) {
  auto ranks = job(2, 16);
  waits(ranks[0], all_reduce(17, 61));
  waits(ranks[1], all_reduce(17, 61));
  const Verdict verdict = after_minute(ranks);
  EXPECT_EQ(verdict.kind, Kind::inside);
  EXPECT_FALSE(verdict.proven);
  EXPECT_FALSE(verdict.culprit);
  EXPECT_THAT(verdict.words, HasSubstr("all its ranks are in it"));
  EXPECT_THAT(verdict.advice, AllOf(HasSubstr("GLOG_v=3"), HasSubstr("FLAGS_benchmark=1")));
}

TEST(Verdict, ARankThatWaitsForBytesIsNotBusy) {
  auto ranks = job(3, 16);
  waits(ranks[0], ended(all_reduce(17, 62)));
  waits(ranks[0], all_reduce(18, 61));
  waits(ranks[1], all_reduce(17, 62));
  waits(ranks[2], all_reduce(17, 62));
  const Verdict verdict = after_minute(ranks);
  EXPECT_EQ(verdict.kind, Kind::inside) << verdict.words;
  EXPECT_FALSE(verdict.culprit);
  EXPECT_THAT(verdict.waiting, ElementsAre(1, 2));
  ranks[1].calls.back().blocking = ranks[2].calls.back().blocking = false;
  EXPECT_EQ(after_minute(ranks).kind, Kind::busy) << "beside its main thread";
}

TEST(Verdict, BeforeTheFirstCall) {
  std::vector<RankSnapshot> ranks = job(1, 0);
  ranks[0].groups[0].size = 2;
  waits(ranks[0], {.group = kWorld, .operation = "init_parallel_env", .blocking = true, .age_ms = 61'000});
  EXPECT_EQ(after_minute(ranks).kind, Kind::inside);
  EXPECT_THAT(after_minute(ranks).words, HasSubstr("nothing is known about rank 1"));
  ranks.push_back({.rank = 1, .state = ProcessState::stopped, .stopped_ms = 70'000});
  const Verdict verdict = after_minute(ranks);
  EXPECT_TRUE(verdict.proven);
  EXPECT_EQ(verdict.culprit, 1);
  EXPECT_EQ(verdict.words, "rank 0 waits in init_parallel_env of group 0 since 61 s for rank 1 (stopped)");
}

}  // namespace
}  // namespace trireme::watch
