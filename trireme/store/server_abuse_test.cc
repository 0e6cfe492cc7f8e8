// A server among hostile, broken and slow clients: each is shown the door, and a good client never notices.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <atomic>
#include <random>

#include "trireme/core/text.h"
#include "trireme/store/test_support.h"

namespace trireme::store {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using wire::Type;

class AbuseTest : public ::testing::Test {
 protected:
  void serve(TcpStoreServer::Options options) {
    server_ = std::make_unique<TcpStoreServer>(listen_tcp("127.0.0.1", 0), std::move(options));
    good_ = join(*server_, token_, "good");
  }
  void serve() { serve({.token = token_}); }
  RawClient dial() { return RawClient(server_->endpoint()); }
  /// A connection from one of this machine's many loopback addresses.
  UniqueFd dial_from(const std::string& ip) {
    UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const SocketAddress source = resolve(ip, 0).front();
    const SocketAddress server = resolve("127.0.0.1", server_->port()).front();
    EXPECT_EQ(::bind(client.get(), source.get(), source.length), 0);
    EXPECT_EQ(::connect(client.get(), server.get(), server.length), 0);
    return client;
  }
  TcpStoreServer::Counters counters() const { return server_->counters(); }
  void expect_good_client_works() { EXPECT_EQ(good_->add("still here", 1), ++count_); }

  CaughtLog log_;
  const Token token_ = Token::random();
  std::atomic<int> gone_ = 0;  // outlives the server, whose thread counts here
  std::unique_ptr<TcpStoreServer> server_;
  std::unique_ptr<TcpStore> good_;
  int64_t count_ = 0;
};

constexpr size_t kRandomMessages = 5'000;  // before the greeting, and as many after it

std::string header(Type type, uint32_t length) {
  std::string bytes = wire::encode({.type = type}).substr(0, wire::kHeaderSize);
  for (size_t i = 0; i < 4; ++i) bytes[8 + i] = static_cast<char>(length >> (8 * i));
  return bytes;
}

TEST_F(AbuseTest, RandomBytes) {
  serve();
  std::mt19937 random(11);
  for (size_t i = 0; i < kRandomMessages; ++i) {
    RawClient client = dial();
    std::string bytes(1 + random() % 300, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    bytes[0] = 'X';
    client.send(bytes);
    EXPECT_TRUE(client.closed());
  }
  EXPECT_EQ(counters().bad_messages, kRandomMessages);
  EXPECT_LE(log_.count("bad message"), kRandomMessages / 100);  // not a line for each
  expect_good_client_works();
}

TEST_F(AbuseTest, RandomMessagesFromAnAuthenticatedClient) {
  serve();
  std::mt19937 random(12);
  const std::string request = wire::encode({.type = Type::set, .parts = {"fuzz", "value"}});
  for (size_t i = 0; i < kRandomMessages; ++i) {
    RawClient client = dial();
    client.authenticate(token_);
    std::string bytes = request;
    for (int j = 0; j < 3; ++j) bytes[random() % bytes.size()] = static_cast<char>(random());
    client.send(client.sealed(bytes));
    client.close();
  }
  expect_good_client_works();
}

TEST_F(AbuseTest, HugeLengthsAreRefusedFromTheHeader) {
  serve();
  RawClient stranger = dial();
  stranger.send(header(Type::hello, UINT32_MAX));
  EXPECT_TRUE(stranger.closed());
  RawClient member = dial();
  member.authenticate(token_);
  member.send(member.sealed(header(Type::set, UINT32_MAX)));
  EXPECT_TRUE(member.closed());
  RawClient early = dial();
  early.send(header(Type::set, 1u << 20));  // allowed to members only
  EXPECT_TRUE(early.closed());
  EXPECT_EQ(counters().bad_messages, 3u);
  expect_good_client_works();
}

TEST_F(AbuseTest, WrongLengthAndWrongVersion) {
  serve();
  RawClient wrong_length = dial();
  wrong_length.authenticate(token_);
  wrong_length.send(wrong_length.sealed(header(Type::set, 9) + std::string(9, '\x01')));
  EXPECT_TRUE(wrong_length.closed());
  RawClient wrong_version = dial();
  wrong_version.send("TRM\x01");
  EXPECT_TRUE(wrong_version.closed());
  EXPECT_EQ(counters().bad_messages, 2u);
  expect_good_client_works();
}

TEST_F(AbuseTest, AnOlderVersionIsNamed) {
  serve();
  RawClient old = dial();
  old.send("TRM\x01");
  EXPECT_TRUE(old.closed());
  EXPECT_EQ(log_.count("another version of the protocol"), 1u);
}

TEST_F(AbuseTest, RequestsBeforeTheGreeting) {
  serve();
  RawClient client = dial();
  client.send({.type = Type::set, .parts = {"k", "stolen"}});
  EXPECT_TRUE(client.closed());
  EXPECT_EQ(good_->try_get("k"), std::nullopt);
  EXPECT_EQ(counters().bad_messages, 1u);
}

TEST_F(AbuseTest, RepliesAndSecondGreetingsAreOutOfTurn) {
  serve();
  for (const Type type : {Type::done, Type::absent}) {
    RawClient client = dial();
    client.authenticate(token_);
    client.send({.type = type});
    EXPECT_TRUE(client.closed());
  }
  RawClient impatient = dial();
  impatient.authenticate(token_);
  impatient.send({.type = Type::get, .number = -1, .parts = {"never"}});
  impatient.send({.type = Type::time});  // while its first request waits
  EXPECT_TRUE(impatient.closed());
  EXPECT_EQ(counters().bad_messages, 3u);
  expect_good_client_works();
}

TEST_F(AbuseTest, WrongToken) {
  serve();
  const std::string text = message_of<PeerError>([&] { join(*server_, Token::random(), "intruder"); });
  EXPECT_THAT(text, HasSubstr("token"));
  EXPECT_THAT(text, HasSubstr(to_string(server_->endpoint())));
  EXPECT_EQ(counters().rejected_tokens, 1u);
  EXPECT_EQ(log_.count("127.0.0.1"), 1u);
  for (int i = 0; i < 50; ++i) EXPECT_THROW(join(*server_, Token::random()), PeerError);
  EXPECT_EQ(counters().rejected_tokens, 51u);
  EXPECT_LE(log_.count("wrong job token"), 25u);
  expect_good_client_works();
}

TEST_F(AbuseTest, AWorthlessKeyEnrolsNobody) {
  serve({.token = token_, .enrolment = TcpStoreServer::Enrolment{.max_joins = 1}});
  RawClient client = dial();
  client.send({.type = Type::enrol, .parts = {std::string(32, '\0')}});  // the secret would be known to everyone
  EXPECT_TRUE(client.closed());
  EXPECT_EQ(counters().bad_messages, 1u);
  EXPECT_EQ(enrol(server_->endpoint(), Deadline::in(20s)), token_);  // and the place is still free
}

TEST_F(AbuseTest, AReplayedGreetingProvesNothing) {
  serve();
  RawClient first = dial();
  const std::string recorded = first.hello(token_, "node 1");
  first.send(recorded);
  EXPECT_EQ(first.receive().type, Type::welcome);
  RawClient second = dial();
  second.receive();  // another challenge
  second.send(recorded);
  EXPECT_EQ(second.receive().type, Type::refuse);
  EXPECT_TRUE(second.closed());
  EXPECT_EQ(counters().rejected_tokens, 1u);
}

TEST_F(AbuseTest, ASlowHandshakeIsCutWhileOthersWork) {
  serve({.token = token_, .handshake_timeout = 200ms});
  const auto since = Clock::now();
  RawClient silent = dial();
  RawClient stalled = dial();
  stalled.send("T");
  expect_good_client_works();
  EXPECT_TRUE(stalled.closed());
  EXPECT_TRUE(silent.closed());
  EXPECT_GE(Clock::now() - since, 200ms);
  EXPECT_EQ(counters().timeouts, 2u);
  expect_good_client_works();  // and the idle good client was not cut
}

TEST_F(AbuseTest, AStartedMessageMustEnd) {
  serve({.token = token_, .message_timeout = 200ms});
  RawClient client = dial();
  client.authenticate(token_);
  const std::string message = wire::encode({.type = Type::set, .parts = {"k", "value"}});
  client.send(client.sealed(message + message.substr(0, 20)));
  EXPECT_EQ(client.receive().type, Type::done);
  EXPECT_TRUE(client.closed());
  EXPECT_EQ(counters().timeouts, 1u);
  expect_good_client_works();
}

TEST_F(AbuseTest, AWaitingClientIsNotATimeout) {
  serve({.token = token_, .handshake_timeout = 100ms, .message_timeout = 100ms});
  RawClient client = dial();
  client.authenticate(token_);
  client.send({.type = Type::get, .number = 400, .parts = {"never"}});
  EXPECT_EQ(client.receive().type, Type::absent);
  EXPECT_EQ(counters().timeouts, 0u);
}

TEST_F(AbuseTest, DisconnectInTheMiddle) {
  serve({.token = token_, .on_disconnect = [&](const std::string& name) { gone_ += name == "half"; }});
  for (int i = 0; i < 20; ++i) {
    RawClient client = dial();
    client.authenticate(token_, "half");
    client.send(client.sealed(header(Type::set, 5000) + "abc"));
    client.close();
  }
  RawClient waiting = dial();
  waiting.authenticate(token_, "half");
  waiting.send({.type = Type::get, .number = -1, .parts = {"k"}});
  waiting.close();
  EXPECT_TRUE(eventually([&] { return gone_ == 21; }));
  EXPECT_GT(log_.count("left in the middle of a message"), 0u);
  good_->set("k", "v");  // would wake the one that left
  expect_good_client_works();
}

TEST_F(AbuseTest, WhatAClientSaidBeforeItLeftCounts) {
  serve();
  RawClient client = dial();
  client.authenticate(token_);
  client.send({.type = Type::set, .parts = {"last words", "bye"}});
  client.close();
  EXPECT_EQ(good_->get("last words", Deadline::in(20s)), "bye");
}

TEST_F(AbuseTest, ConnectionsBeyondTheLimitAreToldSo) {
  serve({.token = token_, .max_connections = 3});
  auto second = join(*server_, token_);
  auto third = join(*server_, token_);
  EXPECT_THAT(message_of<PeerError>([&] { join(*server_, token_); }), HasSubstr("3 clients"));
  EXPECT_EQ(counters().refused_connections, 1u);
  third.reset();
  EXPECT_TRUE(eventually([&] {
    try {
      third = join(*server_, token_);
    } catch (const PeerError&) {
    }
    return third != nullptr;
  }));
  expect_good_client_works();
}

TEST_F(AbuseTest, AFloodOfSilentConnectionsDoesNotLockOthersOut) {
  serve({.token = token_, .handshake_timeout = 1s, .max_unauthenticated = 4});
  std::vector<RawClient> flood;
  for (int i = 0; i < 30; ++i) flood.push_back(dial());
  expect_good_client_works();
  auto newcomer = join(*server_, token_, "newcomer");
  newcomer->set("k", "v");
  EXPECT_GT(counters().timeouts, 0u);
  for (RawClient& client : flood) EXPECT_TRUE(client.closed());
}

// The flood would keep its places for a minute.
TEST_F(AbuseTest, AFloodFromElsewhereGivesWayAtOnce) {
  serve({.token = token_, .handshake_timeout = 60s, .max_unauthenticated = 8});
  std::vector<UniqueFd> flood;
  for (int i = 0; i < 100; ++i) flood.push_back(dial_from("127.0.0.9"));
  join(*server_, token_, "newcomer")->set("k", "v");
  EXPECT_GT(log_.count("connections that do not greet"), 0u);
  EXPECT_GE(counters().timeouts, 98u);  // two are a quarter of the places
}

TEST_F(AbuseTest, ExpectedAddressesComeFirst) {
  serve({.token = token_, .handshake_timeout = 60s, .expected_ips = {"127.0.0.5"}, .max_unauthenticated = 8});
  UniqueFd expected = dial_from("127.0.0.5");
  std::vector<UniqueFd> flood;
  for (int i = 1; i <= 100; ++i) flood.push_back(dial_from(fmt::format("127.0.1.{}", i)));
  ASSERT_TRUE(eventually([&] { return counters().timeouts >= 93u; }));
  char byte = 0;
  ASSERT_TRUE(wait_readable(expected.get(), Deadline::in(20s)));  // the challenge
  while (::recv(expected.get(), &byte, 1, MSG_DONTWAIT) == 1) {
  }
  EXPECT_TRUE(errno == EAGAIN) << "the expected client was closed";
}

TEST_F(AbuseTest, ABurstOfGoodClientsPassesTheSmallDoor) {
  serve({.token = token_, .max_unauthenticated = 2});
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) threads.emplace_back([&] { join(*server_, token_)->add("arrived", 1); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good_->try_get("arrived"), "16");
}

TEST_F(AbuseTest, AClientThatDoesNotReadIsClosed) {
  serve({.token = token_, .max_output = 1u << 20});
  good_->set("large", std::string(1u << 20, 'v'));
  RawClient client = dial();
  client.authenticate(token_);
  for (int i = 0; i < 100; ++i) client.send({.type = Type::try_get, .parts = {"large"}});
  EXPECT_TRUE(eventually([&] { return counters().slow_readers == 1; }));
  EXPECT_TRUE(client.closed());
  expect_good_client_works();
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST_F(AbuseTest, OutOfDescriptorsItRestsAndRecovers) {
  serve();
  errno_text(EMFILE);  // UBSan checks a class on first use through a pipe, which it could not open below
  UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int next_free = ::fcntl(client.get(), F_DUPFD_CLOEXEC, 3);
  ::close(next_free);
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{.rlim_cur = static_cast<rlim_t>(next_free), .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const SocketAddress address = resolve("127.0.0.1", server_->port()).front();
  const int connected = ::connect(client.get(), address.get(), address.length);
  const bool noticed = eventually([&] { return log_.count("cannot accept") > 0; });
  const double cpu = cpu_seconds();
  EXPECT_FALSE(wait_readable(client.get(), Deadline::in(500ms)));
  const double spent = cpu_seconds() - cpu;
  expect_good_client_works();
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(connected, 0);
  EXPECT_TRUE(noticed);
  EXPECT_LT(spent, 0.25);                                       // a spinning thread would use all of the half second
  EXPECT_TRUE(wait_readable(client.get(), Deadline::in(20s)));  // the challenge
}

}  // namespace
}  // namespace trireme::store
