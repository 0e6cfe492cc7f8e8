// The server's judgement without sockets: requests, waits, admission, total size.
#include "trireme/store/engine.h"

#include <gmock/gmock.h>

#include "trireme/core/quiet_thread.h"
#include "trireme/store/gatekeeper.h"
#include "trireme/store/handshake.h"
#include "trireme/store/server_loop.h"
#include "trireme/store/test_support.h"

namespace trireme::store {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using wire::Message;
using wire::Type;

Message decoded(const Bytes& bytes) {
  return wire::decode(*bytes, wire::kMaxPayload).message;
}

class StoreEngineTest : public ::testing::Test {
 protected:
  Message execute(StoreEngine::Client client, const Message& request) {
    const auto reply = engine_.execute(client, request);
    return reply ? decoded(*reply) : Message{.type = Type::failed, .parts = {"waits"}};
  }
  void wait(StoreEngine::Client client, const std::string& key, int64_t ms) {
    EXPECT_FALSE(engine_.execute(client, {.type = Type::get, .number = ms, .parts = {key}}));
  }

  StoreEngine engine_{1000};
};

TEST_F(StoreEngineTest, WaitersGetTheValueAndOnlyThey) {
  wait(1, "k", -1);
  wait(2, "k", -1);
  wait(3, "other", -1);
  execute(4, {.type = Type::set, .parts = {"k", "v"}});
  const auto answers = engine_.take_answers();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].second, answers[1].second);  // the same bytes, not a copy each
  EXPECT_EQ(decoded(answers[0].second).parts[0], "v");
  EXPECT_FALSE(engine_.waits(1));
  EXPECT_TRUE(engine_.waits(3));
}

TEST_F(StoreEngineTest, AWaitEndsByItsOwnDeadline) {
  wait(1, "k", 0);
  wait(2, "k", 3600'000);
  wait(3, "k", INT64_MAX);
  engine_.expire();
  const auto answers = engine_.take_answers();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].first, 1u);
  EXPECT_EQ(decoded(answers[0].second).type, Type::absent);
  EXPECT_GT(engine_.next_deadline().left(), 3000s);
  engine_.forget(2);
  EXPECT_TRUE(engine_.next_deadline().is_never());
}

TEST_F(StoreEngineTest, ACompareSetWithoutEffectWakesNobody) {
  wait(1, "k", -1);
  EXPECT_EQ(execute(2, {.type = Type::compare_set, .parts = {"k", "x", "y"}}).parts[0], "");
  EXPECT_TRUE(engine_.take_answers().empty());
  EXPECT_TRUE(engine_.waits(1));
}

TEST_F(StoreEngineTest, TheForgottenGetNothing) {
  wait(1, "k", -1);
  engine_.forget(1);
  engine_.forget(1);
  execute(2, {.type = Type::add, .number = 1, .parts = {"k"}});
  EXPECT_TRUE(engine_.take_answers().empty());
}

TEST_F(StoreEngineTest, RefusesWhatDoesNotFitAndGoesOn) {
  const Message reply = execute(1, {.type = Type::set, .parts = {"k", std::string(2000, 'v')}});
  EXPECT_EQ(reply.type, Type::failed);
  EXPECT_THAT(reply.parts[0], HasSubstr("0 of 1000 bytes"));
  EXPECT_EQ(execute(1, {.type = Type::try_get, .parts = {"k"}}).type, Type::absent);
  EXPECT_EQ(execute(1, {.type = Type::set, .parts = {"k", "v"}}).type, Type::done);
}

TEST(TableTest, CountsWhatItHolds) {
  Table table(400);
  table.set("a", std::string(100, 'v'));
  table.set("b", std::string(100, 'v'));
  EXPECT_EQ(table.bytes(), 2 * (Table::kEntryCost + 101));
  EXPECT_THROW(table.set("c", "v" + std::string(100, 'v')), UsageError);
  table.set("a", "");  // shrinking and removing always work
  table.set("c", std::string(100, 'v'));
  EXPECT_TRUE(table.remove("a") && table.remove("b") && table.remove("c"));
  EXPECT_EQ(table.bytes(), 0u);
}

TEST(TableTest, ManyTinyKeysReachTheLimitToo) {
  Table table(10'000);
  const auto fill = [&] {
    for (int i = 0; i < 1000; ++i) table.set(std::to_string(i), "");
  };
  EXPECT_THROW(fill(), UsageError);
}

class GatekeeperTest : public ::testing::Test {
 protected:
  Message hello(const Token& token) const {
    const Greeting greeting{visitor_.nonce, std::string(32, 'c'), "rank 3"};
    return {.type = Type::hello, .parts = {greeting.client_nonce, greeting.name, client_proof(token, greeting)}};
  }
  Verdict enrol(Gatekeeper& gate, const std::string& ip) const {
    return gate.judge({.type = Type::enrol, .parts = {KeyAgreement().public_key()}},
                      {.nonce = visitor_.nonce, .ip = ip});
  }

  const Token token_ = Token::random();
  const Visitor visitor_{.nonce = std::string(32, 's'), .ip = "10.0.0.2"};
};

TEST_F(GatekeeperTest, AdmitsTheTokenAndNothingElse) {
  Gatekeeper gate(token_, std::nullopt);
  const Verdict verdict = gate.judge(hello(token_), visitor_);
  EXPECT_EQ(verdict.kind, Verdict::Kind::admitted);
  EXPECT_EQ(verdict.name, "rank 3");
  EXPECT_EQ(gate.judge(hello(Token::random()), visitor_).kind, Verdict::Kind::wrong_token);
  const Visitor later{.nonce = std::string(32, 'S'), .ip = visitor_.ip};
  EXPECT_EQ(gate.judge(hello(token_), later).kind, Verdict::Kind::wrong_token);  // an old answer to a new challenge
  EXPECT_EQ(gate.judge({.type = Type::set, .parts = {"k", "v"}}, visitor_).kind, Verdict::Kind::nonsense);
  EXPECT_EQ(enrol(gate, visitor_.ip).kind, Verdict::Kind::not_enrolled);
}

TEST_F(GatekeeperTest, EnrolsEachAddressAsOftenAsAllowed) {
  Gatekeeper gate(token_, TcpStoreServer::Enrolment{.allowed_ips = {{"10.0.0.1", 1}, {"10.0.0.2", 2}}});
  EXPECT_EQ(enrol(gate, "10.0.0.1").kind, Verdict::Kind::enrolled);
  EXPECT_EQ(enrol(gate, "10.0.0.1").kind, Verdict::Kind::not_enrolled);
  EXPECT_EQ(enrol(gate, "10.0.0.2").kind, Verdict::Kind::enrolled);
  EXPECT_EQ(enrol(gate, "10.0.0.2").kind, Verdict::Kind::enrolled);
  EXPECT_THAT(enrol(gate, "10.0.0.2").reply.parts[0], HasSubstr("2 of 2"));
  EXPECT_THAT(enrol(gate, "10.0.0.3").reply.parts[0], HasSubstr("10.0.0.3"));
}

TEST_F(GatekeeperTest, EnrolsAnyAddressUpToTheTotal) {
  Gatekeeper gate(token_, TcpStoreServer::Enrolment{.max_joins = 2});
  EXPECT_EQ(enrol(gate, "10.0.0.1").kind, Verdict::Kind::enrolled);
  EXPECT_EQ(enrol(gate, "10.0.0.9").kind, Verdict::Kind::enrolled);
  EXPECT_THAT(enrol(gate, "10.0.0.9").reply.parts[0], HasSubstr("all 2 places"));
}

TEST(QuietThreadTest, TakesNoSignalAndLeavesTheCallersMask) {
  sigset_t inside{}, outside{};
  start_quiet_thread("a test", [&] { ::pthread_sigmask(SIG_SETMASK, nullptr, &inside); }).join();
  ::pthread_sigmask(SIG_SETMASK, nullptr, &outside);
  EXPECT_TRUE(::sigismember(&inside, SIGTERM));
  EXPECT_FALSE(::sigismember(&outside, SIGTERM));
}

TEST(RateLimitedLogTest, SaysHowManyWereLeftOut) {
  const CaughtLog lines;
  {
    RateLimitedLog log(1h);
    for (int i = 0; i < 100; ++i) log.warn("knock");
  }
  EXPECT_EQ(lines.count("knock"), 1u);
  EXPECT_EQ(lines.count("99 more"), 1u);
}

}  // namespace
}  // namespace trireme::store
