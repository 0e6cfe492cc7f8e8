#include "trireme/launch/job_state.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;

// A clock of our own: tests of time need not wait.
class JobStateTest : public testing::Test {
 protected:
  Clock::time_point at(Millis since_start) const { return start_ + since_start; }
  void fail(JobState& state, int worker, Millis when, bool victim = false) {
    state.exited(worker, {.success = false, .victim = victim, .when = at(when)});
  }
  void succeed(JobState& state, int worker, Millis when) { state.exited(worker, {.when = at(when)}); }

  Clock::time_point start_ = Clock::now();
  JobState state_{4, {.grace = 10s, .settle = 100ms, .victim_settle = 500ms, .give_up = 2s}};
};

TEST_F(JobStateTest, TheCulpritIsTheFirstInTimeNotInOrder) {
  fail(state_, 0, 1020ms);
  fail(state_, 2, 1010ms);
  EXPECT_EQ(state_.culprit(at(1111ms)), 2);
}

TEST_F(JobStateTest, TheVerdictWaitsForOthersToSettle) {
  fail(state_, 0, 1000ms);
  EXPECT_FALSE(state_.culprit(at(1050ms)));
  EXPECT_EQ(state_.next().time(), at(1100ms));
  EXPECT_EQ(state_.culprit(at(1100ms)), 0);
}

TEST_F(JobStateTest, AVictimIsTakenOnlyWhenNobodyElseFailed) {
  fail(state_, 0, 1000ms, true);
  EXPECT_FALSE(state_.culprit(at(1200ms)));
  fail(state_, 3, 1300ms);
  EXPECT_EQ(state_.culprit(at(1400ms)), 3);
}

TEST_F(JobStateTest, VictimsAloneAreNamedInTheEnd) {
  fail(state_, 1, 1000ms, true);
  EXPECT_EQ(state_.culprit(at(1500ms)), 1);
}

TEST_F(JobStateTest, AVictimThatGaveUpWaitingGetsMoreTime) {
  state_.exited(1, {.success = false, .victim = true, .gave_up = true, .when = at(1000ms)});
  EXPECT_FALSE(state_.culprit(at(2900ms)));
  EXPECT_EQ(state_.culprit(at(3000ms)), 1);
  state_.confirm(1);  // the rank it waited for has ended
  EXPECT_EQ(state_.culprit(at(1100ms)), 1);
}

TEST_F(JobStateTest, AVictimWaitsForTheOtherNodes) {
  JobState part(1, {.victim_settle = 500ms, .whole_job = false});
  fail(part, 0, 1000ms, true);
  EXPECT_FALSE(part.culprit(at(1400ms)));
  EXPECT_EQ(part.culprit(at(1500ms)), 0);
}

TEST_F(JobStateTest, NoWaitingWhenNobodyRunsAnyMore) {
  for (int worker = 0; worker < 3; ++worker) succeed(state_, worker, 1000ms);
  fail(state_, 3, 1001ms);
  EXPECT_EQ(state_.culprit(at(1001ms)), 3);
  EXPECT_FALSE(state_.all_succeeded());
}

TEST_F(JobStateTest, SuccessNeedsEveryone) {
  for (int worker = 0; worker < 3; ++worker) succeed(state_, worker, 1ms);
  EXPECT_FALSE(state_.all_succeeded());
  succeed(state_, 3, 2ms);
  EXPECT_TRUE(state_.all_succeeded());
  EXPECT_FALSE(state_.culprit(at(1s)));
}

TEST_F(JobStateTest, StoppingIsTermThenKillThenGivingUp) {
  state_.stop(SIGTERM, at(0ms));
  EXPECT_EQ(state_.signal_due(at(0ms)), SIGTERM);
  EXPECT_FALSE(state_.signal_due(at(9999ms)));
  EXPECT_EQ(state_.next().time(), at(10s));
  EXPECT_EQ(state_.signal_due(at(10s)), SIGKILL);
  EXPECT_FALSE(state_.signal_due(at(11s)));
  EXPECT_FALSE(state_.given_up(at(11999ms)));
  EXPECT_TRUE(state_.given_up(at(12s)));
}

TEST_F(JobStateTest, ASecondReasonToStopChangesNothing) {
  state_.stop(SIGINT, at(0ms));
  state_.stop(SIGTERM, at(5s));
  EXPECT_EQ(state_.signal_due(at(5s)), SIGINT);
  EXPECT_FALSE(state_.signal_due(at(5s)));
  EXPECT_EQ(state_.signal_due(at(10s)), SIGKILL);
}

TEST_F(JobStateTest, ASignalToTheGroupTooIsTheSameWish) {
  EXPECT_EQ(state_.interrupted(), 0);
  EXPECT_TRUE(state_.interrupt(SIGTERM, at(0ms)));
  EXPECT_FALSE(state_.interrupt(SIGINT, at(99ms)));
  EXPECT_EQ(state_.interrupted(), SIGTERM);
  EXPECT_EQ(state_.signal_due(at(99ms)), SIGTERM);
  EXPECT_FALSE(state_.signal_due(at(9999ms)));
  EXPECT_EQ(state_.signal_due(at(10s)), SIGKILL);
}

TEST_F(JobStateTest, AnImpatientUserGetsTheKillAtOnce) {
  EXPECT_TRUE(state_.interrupt(SIGINT, at(0ms)));
  EXPECT_EQ(state_.signal_due(at(0ms)), SIGINT);
  EXPECT_FALSE(state_.interrupt(SIGINT, at(1s)));
  EXPECT_EQ(state_.signal_due(at(1s)), SIGKILL);
  EXPECT_TRUE(state_.given_up(at(3s)));
}

TEST_F(JobStateTest, WhoEndsAfterTheStopIsNoCulprit) {
  state_.stop(SIGTERM, at(0ms));
  fail(state_, 1, 10ms);
  EXPECT_FALSE(state_.culprit(at(1s)));
  EXPECT_TRUE(state_.was_stopped(1));
}

TEST_F(JobStateTest, FinishedIsMoreThanExited) {
  for (int worker = 0; worker < 4; ++worker) succeed(state_, worker, 1ms);
  EXPECT_FALSE(state_.all_finished());
  for (int worker = 0; worker < 4; ++worker) state_.finished(worker);
  EXPECT_TRUE(state_.all_finished());
}

}  // namespace
}  // namespace trireme::launch
