#include "trireme/launch/nodes/job_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/core/error.h"
#include "trireme/store/memory_store.h"
#include "trireme/store/tcp_client.h"
#include "trireme/store/tcp_server.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

const JobLink::Objection kNone = [](Deadline) { return std::nullopt; };

JobOutcome failure_of(int rank, int code) {
  return JobOutcome::of_culprit(
      {.rank = rank, .host = "b", .ending = {.code = code}, .last_lines = {"last \"words\""}});
}

std::optional<JobOutcome> outcome_within(JobLink& link, Clock::duration limit) {
  const Deadline deadline = Deadline::in(limit);
  for (;;) {
    if (auto outcome = link.outcome()) return outcome;
    if (deadline.passed()) return std::nullopt;
    wait_readable(link.wake_fds().at(0), earlier(deadline, Deadline::in(50ms)));
  }
}

// Two nodes' links over one store, as two launchers have them.
class StoreLinkTest : public testing::Test {
 protected:
  std::unique_ptr<StoreLink> make(std::shared_ptr<LostNodes> lost = nullptr) {
    return std::make_unique<StoreLink>(StoreLink::Options{.store = store_,
                                                          .nodes = 2,
                                                          .coordinator = "node 0",
                                                          .lost = std::move(lost),
                                                          .describe =
                                                              [](const std::string& name) {
                                                                return name == "b"
                                                                           ? std::optional<std::string>("node 1 (b)")
                                                                           : std::nullopt;
                                                              },
                                                          .attempt_timeout = 5s});
  }
  void begin_both(int attempt) {
    std::thread other([&] { b_->begin(attempt, kNone, Millis(0)); });
    a_->begin(attempt, kNone, Millis(0));
    other.join();
  }

  std::shared_ptr<Store> store_ = std::make_shared<store::MemoryStore>();
  std::shared_ptr<LostNodes> lost_ = std::make_shared<LostNodes>();
  std::unique_ptr<StoreLink> a_ = make(lost_);
  std::unique_ptr<StoreLink> b_ = make();
};

TEST_F(StoreLinkTest, TheFirstFailureIsEverybodysOutcome) {
  begin_both(0);
  b_->report(failure_of(3, 7));
  a_->report(failure_of(0, 1));
  for (StoreLink* link : {a_.get(), b_.get()}) {
    const auto outcome = outcome_within(*link, 5s);
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->kind, JobOutcome::Kind::worker_failed);
    EXPECT_EQ(outcome->exit_code, 7);
    EXPECT_EQ(outcome->culprit->rank, 3);
    EXPECT_EQ(outcome->culprit->last_lines.at(0), "last \"words\"");
  }
}

TEST_F(StoreLinkTest, SuccessNeedsEveryNode) {
  begin_both(0);
  a_->report_success();
  EXPECT_FALSE(outcome_within(*a_, 100ms));
  b_->report_success();
  EXPECT_EQ(outcome_within(*a_, 5s)->kind, JobOutcome::Kind::success);
  EXPECT_EQ(outcome_within(*b_, 5s)->kind, JobOutcome::Kind::success);
  a_->farewell(Deadline::in(5s));
}

TEST_F(StoreLinkTest, ANewAttemptForgetsTheOldOutcome) {
  begin_both(0);
  b_->report(failure_of(1, 7));
  ASSERT_TRUE(outcome_within(*a_, 5s));
  begin_both(1);
  EXPECT_FALSE(outcome_within(*a_, 100ms));
  a_->report_success();
  b_->report_success();
  EXPECT_EQ(outcome_within(*b_, 5s)->kind, JobOutcome::Kind::success);
}

TEST_F(StoreLinkTest, ALostNodeEndsTheJobAndAStrangerDoesNot) {
  begin_both(0);
  lost_->add("a stranger that was refused");
  EXPECT_FALSE(outcome_within(*a_, 100ms));
  lost_->add("b");
  const auto outcome = outcome_within(*a_, 5s);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->kind, JobOutcome::Kind::node_lost);
  EXPECT_THAT(outcome->reason, HasSubstr("node 1 (b)"));
}

TEST_F(StoreLinkTest, ANodeThatDoesNotComeBackIsAnError) {
  auto lonely = std::make_unique<StoreLink>(
      StoreLink::Options{.store = store_, .nodes = 2, .coordinator = "node 0", .attempt_timeout = 100ms});
  EXPECT_THROW(lonely->begin(0, kNone, Millis(0)), PeerError);
}

TEST_F(StoreLinkTest, AnObjectionEndsTheAttemptForAllBeforeItBegins) {
  std::thread other([&] { b_->begin(0, kNone, Millis(0)); });
  a_->begin(
      0, [](Deadline) { return std::optional(JobOutcome::of_signal(2, "hosta")); }, Millis(0));
  other.join();
  for (StoreLink* link : {a_.get(), b_.get()}) {
    const auto outcome = link->outcome();
    ASSERT_TRUE(outcome);
    EXPECT_EQ(outcome->exit_code, 130);
    EXPECT_TRUE(outcome->final);
  }
}

TEST_F(StoreLinkTest, AnObjectionEndsThePauseOfTheOthers) {
  std::thread other([&] { b_->begin(0, kNone, Millis(600'000)); });
  a_->begin(
      0, [](Deadline) { return std::optional(JobOutcome::of_signal(2, "hosta")); }, Millis(600'000));
  other.join();
  EXPECT_EQ(b_->outcome()->exit_code, 130);
}

TEST_F(StoreLinkTest, TheLastNodeToComeObjectsBeforeItLetsTheOthersGo) {
  store_->add("begun/0", 1);  // as if the other node waited already
  const auto objection = [&](Deadline) {
    EXPECT_FALSE(store_->try_get("all_begun/0"));
    return std::optional(JobOutcome::of_signal(2, "hosta"));
  };
  a_->begin(0, objection, Millis(0));
  EXPECT_TRUE(store_->try_get("all_begun/0"));
  b_->begin(0, kNone, Millis(0));
  EXPECT_EQ(b_->outcome()->exit_code, 130);
}

TEST_F(StoreLinkTest, ANodeLostBetweenAttemptsIsNamedAtOnce) {
  lost_->add("b");
  a_->begin(0, kNone, Millis(0));
  EXPECT_THAT(a_->outcome()->reason, HasSubstr("node 1 (b)"));
}

// One node's link to a coordinator that can go away.
class CoordinatorTest : public testing::Test {
 protected:
  void lose_coordinator() {
    link_.begin(0, kNone, Millis(0));
    server_.reset();
  }

  Token token_ = Token::random();
  std::unique_ptr<store::TcpStoreServer> server_ = std::make_unique<store::TcpStoreServer>(
      listen_tcp("127.0.0.1", 0), store::TcpStoreServer::Options{.token = token_});
  StoreLink link_{
      {.store = store::TcpStore::connect({.server = server_->endpoint(), .token = token_}, Deadline::in(5s)),
       .nodes = 1,
       .coordinator = "node 0 (hosta)"}};
};

TEST_F(CoordinatorTest, LostEndsTheJob) {
  lose_coordinator();
  const auto outcome = outcome_within(link_, 5s);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->exit_code, exit_code::kPeer);
  EXPECT_THAT(outcome->reason, HasSubstr("node 0 (hosta)"));
}

TEST_F(CoordinatorTest, LostBetweenAttemptsIsTheOutcomeOfTheNext) {
  link_.begin(0, kNone, Millis(0));
  link_.report(failure_of(0, 7));
  server_.reset();
  link_.begin(1, kNone, Millis(0));
  const auto outcome = link_.outcome();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->kind, JobOutcome::Kind::node_lost);
  EXPECT_TRUE(outcome->coordinator);
}

TEST_F(StoreLinkTest, ACoordinatorThatIsReplacedEndsTheAttemptForAll) {
  StoreLink link({.store = store_, .nodes = 1, .coordinator = "node 0", .revoked = [] {
                    return std::optional(JobOutcome::lost_coordinator("no lease"));
                  }});
  link.begin(0, kNone, Millis(0));
  EXPECT_EQ(outcome_within(link, 5s)->reason, "no lease");
  EXPECT_TRUE(outcome_from_json(*store_->try_get(StoreLink::outcome_key(0))).coordinator);
}

TEST_F(CoordinatorTest, LostHidesNoFailureOfThisNode) {
  lose_coordinator();
  ASSERT_TRUE(outcome_within(link_, 5s));  // the waiting thread has noticed the loss
  link_.report(failure_of(3, 5));
  EXPECT_EQ(link_.outcome()->exit_code, 5);
}

TEST(JobOutcome, NonsenseFromAnotherNodeIsAPeerError) {
  for (const char* text : {"", "{}", "[1]", R"({"kind":99,"exit_code":0,"signal":0,"reason":""})", "\xff"})
    EXPECT_THROW(outcome_from_json(text), PeerError) << text;
}

TEST(JobOutcome, DeparturesSurviveTheWayThroughJson) {
  JobOutcome left = JobOutcome::left(15, "node 1 (b, 10.0.0.2)");
  left.coordinator = left.at_once = true;
  const JobOutcome after = outcome_from_json(to_json(left));
  EXPECT_EQ(after.kind, JobOutcome::Kind::node_left);
  EXPECT_EQ(after.reason, "node 1 (b, 10.0.0.2) left: SIGTERM");
  EXPECT_TRUE(after.coordinator && after.at_once);
  EXPECT_FALSE(after.final);
  EXPECT_EQ(outcome_from_json(to_json(JobOutcome::joined("node 2"))).reason, "node 2 joined");
}

TEST(JobOutcome, SurvivesTheWayThroughJson) {
  const JobOutcome outcome = outcome_from_json(to_json(JobOutcome::of_signal(2, "host\x01")));
  EXPECT_EQ(outcome.exit_code, 130);
  EXPECT_THAT(outcome.reason, HasSubstr("SIGINT"));
}

}  // namespace
}  // namespace trireme::launch
