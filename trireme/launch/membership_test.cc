// Who takes part, and what a node does when that changes.
#include "trireme/launch/membership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "trireme/core/error.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;

ElasticRules range(int min, int max) {
  return {.on = true, .min = min, .max = max, .timeout = 30s};
}

// --- rules

TEST(ElasticRules, FollowFromTheRequest) {
  EXPECT_FALSE(elastic_rules({.nodes = 2}).on);
  EXPECT_FALSE(elastic_rules({.nodes = 1, .max_restart = 3}).on);
  EXPECT_TRUE(elastic_rules({.nodes = 2, .max_restart = 1}).on);
  const ElasticRules two_to_four = elastic_rules({.nodes = 4, .min_nodes = 2});
  EXPECT_TRUE(two_to_four.on && two_to_four.range());
  EXPECT_EQ(two_to_four.min, 2);
  EXPECT_EQ(two_to_four.max, 4);
}

TEST(ElasticRules, TheLevelWins) {
  EXPECT_FALSE(elastic_rules({.nodes = 4, .min_nodes = 2, .elastic_level = -1}).on);
  EXPECT_TRUE(elastic_rules({.nodes = 2, .elastic_level = 1}).on);
  EXPECT_TRUE(elastic_rules({.nodes = 2, .elastic_level = 0}).failing_node_leaves);
  EXPECT_FALSE(elastic_rules({.nodes = 1, .elastic_level = 1}).on);
}

TEST(ElasticRules, WhichSignalsTakeANodeOut) {
  const ElasticRules fixed = range(2, 2);
  EXPECT_TRUE(signal_means_leave(SIGTERM, fixed, false));
  EXPECT_FALSE(signal_means_leave(SIGINT, fixed, false));
  EXPECT_TRUE(signal_means_leave(SIGINT, range(2, 3), false));
  EXPECT_FALSE(signal_means_leave(SIGTERM, range(2, 3), true));
  EXPECT_FALSE(signal_means_leave(SIGTERM, {.min = 2, .max = 3}, false));
}

// --- gathering

struct GatheringCase {
  const char* what;
  Gathering gathering;
  Gathered expected;
};

TEST(Gathering, ANewJobOfTwoToFour) {
  const Millis patience = 600s;
  const GatheringCase cases[] = {
      {"alone", {1, 4, 100s, 100s, patience}, Gathered::wait},
      {"enough, but another may come", {2, 4, 10s, 10s, patience}, Gathered::wait},
      {"enough, and none comes", {2, 4, 40s, 30s, patience}, Gathered::go},
      {"a third came just now", {3, 4, 40s, 1s, patience}, Gathered::wait},
      {"all", {4, 4, 0s, 0s, patience}, Gathered::go},
      {"too few for too long", {1, 4, 600s, 600s, patience}, Gathered::give_up},
      {"enough at the last moment", {2, 4, 600s, 1s, patience}, Gathered::go},
  };
  for (const auto& [what, gathering, expected] : cases) EXPECT_EQ(judge(gathering, range(2, 4)), expected) << what;
}

TEST(Gathering, AfterADeparture) {
  const GatheringCase cases[] = {
      {"enough are left", {2, 2, 0s, 0s, 30s}, Gathered::go},
      {"a spare waits for the free number", {2, 3, 0s, 0s, 30s}, Gathered::wait},
      {"the spare has taken it", {3, 3, 0s, 0s, 30s}, Gathered::go},
      {"too few are left", {1, 1, 29s, 29s, 30s}, Gathered::wait},
      {"nobody came", {1, 1, 30s, 30s, 30s}, Gathered::give_up},
  };
  for (const auto& [what, gathering, expected] : cases) EXPECT_EQ(judge(gathering, range(2, 3)), expected) << what;
}

TEST(Gathering, AFixedNumberNeedsAReplacement) {
  EXPECT_EQ(judge({1, 1, 1s, 1s, 30s}, range(2, 2)), Gathered::wait);
  EXPECT_EQ(judge({2, 2, 1s, 0s, 30s}, range(2, 2)), Gathered::go);
  EXPECT_EQ(judge({1, 1, 30s, 30s, 30s}, range(2, 2)), Gathered::give_up);
}

TEST(Gathering, ANewCoordinatorWaitsForTheOtherMembers) {
  EXPECT_EQ(judge({2, 3, 1s, 1s, 30s}, range(2, 4)), Gathered::wait);
  EXPECT_EQ(judge({3, 3, 1s, 0s, 30s}, range(2, 4)), Gathered::go);
  EXPECT_EQ(judge({2, 3, 30s, 29s, 30s}, range(2, 4)), Gathered::go);
}

// --- after an attempt

TEST(NextStep, FailuresOfProcessesCountAgainstMaxRestart) {
  const JobOutcome failed = JobOutcome::of_culprit({.rank = 1, .ending = {.code = 7}});
  EXPECT_EQ(next_step(failed, {}), Step::end);
  EXPECT_EQ(next_step(failed, {.restarts = 0, .max_restart = 1}), Step::restart);
  EXPECT_EQ(next_step(failed, {.restarts = 1, .max_restart = 1}), Step::end);
}

TEST(NextStep, AProgramThatCannotRunIsNotRestarted) {
  const JobOutcome missing = JobOutcome::of_culprit({.rank = 1, .ending = {.code = exit_code::kNotFound}});
  EXPECT_EQ(next_step(missing, {.rules = range(1, 2), .max_restart = 5}), Step::end);
}

TEST(NextStep, AtLevelZeroTheFailingNodeLeaves) {
  ElasticRules rules = range(1, 2);
  rules.failing_node_leaves = true;
  const JobOutcome failed = JobOutcome::of_culprit({.rank = 1, .ending = {.code = 7}});
  EXPECT_EQ(next_step(failed, {.rules = rules, .max_restart = 5, .failed_here = true}), Step::end);
  EXPECT_EQ(next_step(failed, {.rules = rules}), Step::gather);
}

TEST(NextStep, DeparturesAndArrivalsDoNotCount) {
  for (const JobOutcome& outcome :
       {JobOutcome::lost("node 1"), JobOutcome::left(SIGTERM, "node 1"), JobOutcome::joined("node 2")}) {
    EXPECT_EQ(next_step(outcome, {.rules = range(1, 3)}), Step::gather);
    EXPECT_EQ(next_step(outcome, {}), Step::end) << "not elastic";
    EXPECT_EQ(next_step(outcome, {.rules = range(1, 3), .leaves = true}), Step::leave);
    EXPECT_EQ(next_step(outcome, {.rules = range(1, 3), .unkillable = true}), Step::end);
  }
}

TEST(NextStep, WhoLosesTheCoordinatorLooksForTheJobAgain) {
  EXPECT_EQ(next_step(JobOutcome::lost_coordinator("node 0"), {.rules = range(1, 3)}), Step::rejoin);
  EXPECT_EQ(next_step(JobOutcome::lost_coordinator("node 0"), {}), Step::end);
}

TEST(NextStep, SuccessAndInterruptionEndTheJob) {
  EXPECT_EQ(next_step({}, {.rules = range(1, 3), .max_restart = 9}), Step::end);
  EXPECT_EQ(next_step(JobOutcome::of_signal(SIGINT, "a"), {.rules = range(1, 3), .max_restart = 9}), Step::end);
}

TEST(MembershipLine, SaysWhoWhyAndHowMany) {
  const Membership membership{
      .attempt = 2, .hosts = {"a", "b"}, .ranks = 4, .why = "node 2 (c, 10.0.0.3) left: SIGTERM"};
  EXPECT_EQ(membership_line(membership, {}, 0),
            "attempt 2 has 2 nodes, 4 ranks: node 2 (c, 10.0.0.3) left: SIGTERM; this is node 0");
  EXPECT_EQ(membership_line({.attempt = 1, .hosts = {"a"}, .ranks = 1, .why = "x"}, {"node 0 (a, ::1)"}, 0),
            "attempt 1 has 1 node, 1 rank: x; new: node 0 (a, ::1); this is node 0");
}

}  // namespace
}  // namespace trireme::launch
