// Numbers of nodes, and the gathering of those that take part, over a store in memory.
#include "trireme/launch/nodes/gathering.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "trireme/core/error.h"
#include "trireme/core/net.h"
#include "trireme/core/test_support.h"
#include "trireme/launch/nodes/claims.h"
#include "trireme/launch/nodes/newcomer.h"
#include "trireme/launch/test_nodes.h"
#include "trireme/store/ended_ranks.h"
#include "trireme/store/memory_store.h"
#include "trireme/store/tcp_server.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

class Gather : public testing::Test {
 protected:
  // The node takes a number and introduces itself.
  int come(const std::string& name, int attempt = 0) {
    const int number = name == "a" ? claim_number(*store_, name, 0, 4) : claim_number(*store_, name, std::nullopt, 4);
    Introduction self{.info = example_node("10.0.0." + std::to_string(number + 1), 1), .name = name};
    self.probe = {"10.0.0.1", 4000};
    self.attempt = attempt;
    store_->set(introduction_key(number), to_json(self));
    return number;
  }

  GatherOptions options(int min, int max, Millis timeout) const {
    return {.seat = seat_,
            .rules = {.on = true, .min = min, .max = max, .timeout = timeout},
            .patience = timeout,
            .objection = [](Deadline) { return std::nullopt; }};
  }

  static std::vector<std::string> names(const Roster& roster) {
    std::vector<std::string> names;
    for (const Introduction& node : roster.nodes) names.push_back(node.name);
    return names;
  }

  std::shared_ptr<Store> store_ = std::make_shared<store::MemoryStore>();
  LostNodes departures_;
  const Seat seat_{.nodes = 4};
};

TEST_F(Gather, ANumberIsFreeAgainWhenItsNodeHasGone) {
  EXPECT_EQ(come("a"), 0);
  EXPECT_EQ(come("b"), 1);
  EXPECT_EQ(come("c"), 2);
  departures_.add("b");
  EXPECT_THAT(drop_departed(*store_, departures_), ElementsAre("node 1 (b)"));
  EXPECT_THAT(drop_departed(*store_, departures_), ElementsAre());
  EXPECT_EQ(try_claim(*store_, "d", std::nullopt, 3), 1);
  EXPECT_EQ(try_claim(*store_, "e", std::nullopt, 3), std::nullopt);
  give_up_number(*store_, 2);
  EXPECT_EQ(try_claim(*store_, "e", 2, 3), 2);
}

TEST_F(Gather, TheRestKeepsItsOrder) {
  for (const char* name : {"a", "b", "c", "d"}) come(name);
  departures_.add("b");
  GatherOptions after = options(2, 4, 30s);
  after.departure = "lost node 1 (b)";
  after.attempt = 3;
  const Roster roster = gather(*store_, after, departures_);
  EXPECT_THAT(names(roster), ElementsAre("a", "c", "d"));
  EXPECT_EQ(roster.attempt, 3);
  EXPECT_FALSE(roster.over);
}

TEST_F(Gather, ANodeThatKnowsALaterAttemptWins) {
  come("a");
  come("b", 7);
  EXPECT_EQ(gather(*store_, options(2, 2, 30s), departures_).attempt, 7);
}

TEST_F(Gather, WaitsForOneThatComes) {
  come("a");
  GatherOptions after = options(2, 2, 30s);
  after.departure = "lost node 1";
  std::thread other([&] { come("b"); });
  const Roster roster = gather(*store_, after, departures_);
  other.join();
  EXPECT_THAT(names(roster), ElementsAre("a", "b"));
}

TEST_F(Gather, GivesUpAndSaysWhatWasLost) {
  come("a");
  GatherOptions after = options(2, 2, 100ms);
  after.departure = "lost node 1 (b)";
  const Roster roster = gather(*store_, after, departures_);
  ASSERT_TRUE(roster.over);
  EXPECT_THAT(roster.over->reason, HasSubstr("lost node 1 (b); 1 of at least 2 nodes are left"));
  EXPECT_EQ(roster.over->exit_code, exit_code::kPeer);
}

TEST_F(Gather, ANewJobThatLacksNodesIsAnError) {
  come("a");
  EXPECT_THROW(gather(*store_, options(2, 2, 100ms), departures_), PeerError);
}

TEST_F(Gather, AnObjectionEndsIt) {
  come("a");
  GatherOptions interrupted = options(2, 2, 30s);
  interrupted.objection = [](Deadline) { return std::optional(JobOutcome::of_signal(2, "a")); };
  EXPECT_EQ(gather(*store_, interrupted, departures_).over->signal, 2);
}

TEST_F(Gather, ARosterSurvivesTheWayThroughTheStore) {
  come("a");
  come("b");
  Roster roster = gather(*store_, options(2, 2, 30s), departures_);
  roster.restarts = 2;
  roster.max_restart = 5;
  roster.over = JobOutcome::lost("node 1");
  EXPECT_EQ(last_round(*store_), -1);
  publish_roster(*store_, 3, roster);
  EXPECT_EQ(last_round(*store_), 3);
  const auto after = roster_within(*store_, 3, Deadline::in(1s));
  ASSERT_TRUE(after);
  EXPECT_EQ(names(*after), names(roster));
  EXPECT_EQ(after->restarts, 2);
  EXPECT_EQ(after->max_restart, 5);
  EXPECT_TRUE(after->rules.on);
  EXPECT_EQ(after->rules.timeout, 30s);
  EXPECT_EQ(after->over->reason, "node 1");
}

// --- newcomers

class NewcomerTest : public Gather {
 protected:
  std::optional<JobOutcome> outcome(int attempt) const {
    const auto text = store_->try_get(StoreLink::outcome_key(attempt));
    return text ? std::optional(outcome_from_json(*text)) : std::nullopt;
  }
};

TEST_F(NewcomerTest, EndsTheAttemptUnderWay) {
  publish_roster(*store_, 0, {.attempt = 4});
  ask_to_gather(store_, 0, "node 2 (c)");
  ASSERT_TRUE(outcome(4));
  EXPECT_EQ(outcome(4)->kind, JobOutcome::Kind::node_joined);
}

TEST_F(NewcomerTest, DoesNotDisturbAJobThatIsAboutToEnd) {
  publish_roster(*store_, 0, {.attempt = 4});
  store::EndedRanks(store_, 4).note_end(1, "exit 0");
  ask_to_gather(store_, 0, "node 2 (c)");
  EXPECT_FALSE(outcome(4));
}

TEST_F(NewcomerTest, HearsThatTheJobHasEnded) {
  publish_roster(*store_, 0, {.over = JobOutcome::lost("everything")});
  EXPECT_THROW(ask_to_gather(store_, 0, "node 2 (c)"), PeerError);
}

TEST_F(NewcomerTest, ASpareTakesTheNextFreeNumber) {
  for (const char* name : {"a", "b", "c", "d"}) come(name);
  std::thread spare(
      [&] { EXPECT_EQ(wait_for_number(*store_, {.name = "e", .wanted = {}, .nodes = 4}, Deadline::in(30s)), 2); });
  while (waiting_for_number(*store_, departures_) == 0) std::this_thread::yield();
  give_up_number(*store_, 2);
  spare.join();
  EXPECT_EQ(waiting_for_number(*store_, departures_), 0);
}

TEST_F(NewcomerTest, ASpareThatNobodyNeedsEnds) {
  for (const char* name : {"a", "b", "c", "d"}) come(name);
  EXPECT_THROW(wait_for_number(*store_, {.name = "e", .wanted = {}, .nodes = 4}, Deadline::in(100ms)), PeerError);
  departures_.add("a spare that was killed");
  queue_for_number(*store_, "a spare that was killed");
  EXPECT_EQ(waiting_for_number(*store_, departures_), 0);
}

TEST_F(NewcomerTest, AProbeThatRefusesIsNotTriedWithoutAPause) {
  const Token token = Token::random();
  const store::TcpStoreServer probe(listen_tcp("127.0.0.1", 0), {.token = token});
  Introduction member{.info = example_node("10.0.0.1", 1), .name = "a"};
  member.probe = {"127.0.0.1", probe.port()};
  store_->set(introduction_key(0), to_json(member));
  Introduction self{.info = example_node("10.0.0.2", 1), .name = "b"};
  self.attempt = 1;
  const CaughtLog log;
  EXPECT_THROW(prepare_to_join(*store_, Token::random(), self, Deadline::in(1200ms)), PeerError);
  EXPECT_LE(log.count("waiting: "), 4u);
}

// A store whose server ends while it is asked.
class LostStore : public store::MemoryStore {
 public:
  std::string get(const std::string&, Deadline) override { throw PeerError("lost the connection"); }
};

TEST(Claims, ALostStoreIsNotATakenNumber) {
  LostStore store;
  EXPECT_EQ(claim_number(store, "a", 1, 4), 1);
  EXPECT_THROW(claim_number(store, "b", 1, 4), PeerError);
}

TEST_F(Gather, ATakenNumberIsTheUsersFault) {
  come("b");
  EXPECT_THROW(claim_number(*store_, "c", 1, 4), UsageError);
}

}  // namespace
}  // namespace trireme::launch
