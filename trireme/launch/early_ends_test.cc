#include "trireme/launch/early_ends.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "trireme/launch/report/outcome.h"
#include "trireme/store/memory_store.h"

namespace trireme::launch {
namespace {

class EarlyEndsTest : public ::testing::Test {
 protected:
  void give_up(int rank, const std::string& operation, const std::vector<int>& ranks) {
    store::EndedRanks(store_, 0).note_wait({.rank = rank, .operation = operation, .ranks = ranks});
  }
  void end(int rank) { ends_.note({.rank = rank, .host = "hosta", .last_lines = std::vector<std::string>(99, "x")}); }

  std::shared_ptr<Store> store_ = std::make_shared<store::MemoryStore>();
  EarlyEnds ends_{store_, 0};
};

TEST_F(EarlyEndsTest, TheCulpritIsTheRankThatBothSidesName) {
  give_up(0, "new_group", {1, 2, 3});
  give_up(3, "new_group", {1, 2});
  give_up(4, "barrier", {5});
  EXPECT_FALSE(ends_.culprit_of(0));
  end(2);
  end(5);
  const WorkerEnding culprit = ends_.culprit_of(0).value();
  EXPECT_EQ(culprit.rank, 2);
  EXPECT_EQ(culprit.host, "hosta");
  EXPECT_EQ(culprit.awaited_by, (std::vector<int>{0, 3}));
  EXPECT_EQ(culprit.awaited_in, "new_group");
  EXPECT_EQ(culprit.last_lines.size(), 30u);
  EXPECT_EQ(ends_.culprit_of(4)->rank, 5);
}

TEST_F(EarlyEndsTest, ARankThatNobodyWaitedForIsNoCulprit) {
  end(1);
  EXPECT_FALSE(ends_.culprit_of(0));
  give_up(0, "recv", {2});
  EXPECT_FALSE(ends_.culprit_of(0));
}

TEST_F(EarlyEndsTest, ARankThatGaveUpItselfIsNotTheCulprit) {
  give_up(0, "all_reduce", {1, 2});
  give_up(1, "all_reduce", {0, 2});
  end(1);  // its program caught the error and ended with exit code 0
  EXPECT_FALSE(ends_.culprit_of(0));
  end(2);
  EXPECT_EQ(ends_.culprit_of(0)->rank, 2);
}

TEST_F(EarlyEndsTest, WhoGaveUpWaitingForARankThatLives) {
  give_up(0, "all_reduce", {1, 2});
  give_up(2, "all_reduce", {0, 1});
  give_up(3, "recv", {2});
  WorkerEnding late{.rank = 1};
  ends_.add_waits(0, late);
  EXPECT_EQ(late.awaited_by, (std::vector<int>{0, 2}));
  EXPECT_EQ(late.awaited_in, "all_reduce");
  ends_.add_waits(7, late);  // which has noted nothing
  EXPECT_EQ(late.awaited_in, "all_reduce");
}

TEST_F(EarlyEndsTest, OnlyAnEndThatAPeerErrorCanCauseCounts) {
  const Ending peer{.code = 75}, aborted{.exited = false, .signal = SIGABRT},
      crashed{.exited = false, .signal = SIGSEGV};
  EXPECT_FALSE(ends_.gave_up(0, peer));
  give_up(0, "all_reduce", {1});
  EXPECT_TRUE(ends_.gave_up(0, peer));
  EXPECT_TRUE(ends_.gave_up(0, aborted));
  EXPECT_FALSE(ends_.gave_up(0, crashed));
}

TEST_F(EarlyEndsTest, TheOutcomeIsAFailureAndTravels) {
  give_up(0, "all_reduce", {1});
  end(1);
  const JobOutcome outcome = JobOutcome::of_culprit(ends_.culprit_of(0).value());
  EXPECT_EQ(outcome.exit_code, 75);
  const JobOutcome copy = outcome_from_json(to_json(outcome));
  EXPECT_EQ(copy.culprit, outcome.culprit);
}

}  // namespace
}  // namespace trireme::launch
