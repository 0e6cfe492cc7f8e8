// Client and server on real sockets: meeting, names, enrolment, loss.
#include <gmock/gmock.h>

#include <future>
#include <thread>

#include "trireme/core/thread_annotations.h"
#include "trireme/store/test_support.h"

namespace trireme::store {
namespace {

using namespace testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using wire::Type;

class TcpTest : public ::testing::Test {
 protected:
  std::unique_ptr<TcpStoreServer> serve(TcpStoreServer::Options options) {
    return std::make_unique<TcpStoreServer>(listen_tcp("127.0.0.1", 0), std::move(options));
  }
  std::unique_ptr<TcpStoreServer> serve() { return serve({.token = token_}); }
  std::unique_ptr<TcpStoreServer> serve(TcpStoreServer::Enrolment enrolment) {
    return serve({.token = token_, .enrolment = std::move(enrolment)});
  }

  CaughtLog log_;
  const Token token_ = Token::random();
};

/// Names in the order they were reported, from the server's thread.
class Names {
 public:
  void add(const std::string& name) {
    const std::lock_guard lock(mutex_);
    names_.push_back(name);
  }
  std::vector<std::string> get() const {
    const std::lock_guard lock(mutex_);
    return names_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::string> names_ TRIREME_GUARDED_BY(mutex_);
};

TEST_F(TcpTest, TheServerMayStartAfterItsClients) {
  UniqueFd reserved = reserve_port("127.0.0.1", 0);
  const Endpoint address{"127.0.0.1", port_of(local_address(reserved.get()))};
  std::promise<void> refused;
  std::thread client([&] {
    EXPECT_THROW(TcpStore::connect({.server = address, .token = token_}, Deadline::in(1ms)), PeerError);
    refused.set_value();
    auto store = TcpStore::connect({.server = address, .token = token_}, Deadline::in(20s));
    store->set("here", "yes");
  });
  ASSERT_EQ(refused.get_future().wait_for(20s), std::future_status::ready);
  ASSERT_EQ(::listen(reserved.get(), 16), 0);
  TcpStoreServer server(std::move(reserved), {.token = token_});
  client.join();
  EXPECT_EQ(server.port(), address.port);
  EXPECT_EQ(server.endpoint(), address);
  EXPECT_EQ(join(server, token_)->try_get("here"), "yes");
}

TEST_F(TcpTest, NobodyThere) {
  const UniqueFd reserved = reserve_port("127.0.0.1", 0);
  const Endpoint address{"127.0.0.1", port_of(local_address(reserved.get()))};
  const auto since = Clock::now();
  const auto connect = [&] { TcpStore::connect({.server = address, .token = token_}, Deadline::in(100ms)); };
  EXPECT_THAT(message_of<PeerError>(connect), HasSubstr(to_string(address)));
  EXPECT_LT(Clock::now() - since, 10s);
}

TEST_F(TcpTest, AnotherProgramOnThePort) {
  const UniqueFd listener = listen_tcp("127.0.0.1", 0);
  const Endpoint address{"127.0.0.1", port_of(local_address(listener.get()))};
  std::thread stranger([&] {
    const UniqueFd client(::accept(listener.get(), nullptr, nullptr));
    write_all(client.get(), "220 mail.example.org ESMTP\r\n");
    wait_readable(client.get(), Deadline::in(20s));
  });
  const auto connect = [&] { TcpStore::connect({.server = address, .token = token_}, Deadline::in(20s)); };
  EXPECT_THAT(message_of<PeerError>(connect), HasSubstr("another program"));
  stranger.join();
}

TEST_F(TcpTest, AServerOfAnotherVersion) {
  const UniqueFd listener = listen_tcp("127.0.0.1", 0);
  const Endpoint address{"127.0.0.1", port_of(local_address(listener.get()))};
  std::thread old([&] {
    const UniqueFd client(::accept(listener.get(), nullptr, nullptr));
    std::string challenge = wire::encode({.type = Type::challenge, .parts = {std::string(32, 'n')}});
    challenge[3] = wire::kVersion - 1;
    write_all(client.get(), challenge);
    wait_readable(client.get(), Deadline::in(20s));
  });
  const auto connect = [&] { TcpStore::connect({.server = address, .token = token_}, Deadline::in(20s)); };
  EXPECT_THAT(message_of<PeerError>(connect), HasSubstr("another version of the protocol, expected was version 2"));
  old.join();
}

TEST_F(TcpTest, AServerMustProveTheTokenToo) {
  const UniqueFd listener = listen_tcp("127.0.0.1", 0);
  const Endpoint address{"127.0.0.1", port_of(local_address(listener.get()))};
  std::thread impostor([&] {
    const UniqueFd client(::accept(listener.get(), nullptr, nullptr));
    write_all(client.get(), wire::encode({.type = Type::challenge, .parts = {std::string(32, 'n')}}));
    write_all(client.get(), wire::encode({.type = Type::welcome, .parts = {std::string(32, 'p')}}));
    wait_readable(client.get(), Deadline::in(20s));
  });
  const auto connect = [&] { TcpStore::connect({.server = address, .token = token_}, Deadline::in(20s)); };
  EXPECT_THAT(message_of<PeerError>(connect), HasSubstr("does not know"));
  impostor.join();
}

TEST_F(TcpTest, AServerThatStopsAnsweringIsLost) {
  const UniqueFd listener = listen_tcp("127.0.0.1", 0);  // the kernel accepts for it; it never speaks
  const Endpoint address{"127.0.0.1", port_of(local_address(listener.get()))};
  const auto connect = [&] { TcpStore::connect({.server = address, .token = token_}, Deadline::in(100ms)); };
  EXPECT_THAT(message_of<PeerError>(connect), HasSubstr("not answered"));
}

TEST_F(TcpTest, NamesOfThoseWhoComeAndGo) {
  Names came, went;
  auto server = serve({.token = token_,
                       .on_connect = [&](const std::string& name) { came.add(name); },
                       .on_disconnect = [&](const std::string& name) { went.add(name); }});
  auto one = join(*server, token_, "node 1");
  auto two = join(*server, token_, "node 2");
  std::thread waiter([&] { two->get("go", Deadline::in(20s)); });  // its extra connection has no name
  one->set("go", "");
  waiter.join();
  EXPECT_THAT(came.get(), ElementsAre("node 1", "node 2"));
  one.reset();
  EXPECT_TRUE(eventually([&] { return went.get().size() == 1; }));
  EXPECT_THAT(went.get(), ElementsAre("node 1"));
  server.reset();  // its own end is not a loss of node 2
  EXPECT_THAT(went.get(), ElementsAre("node 1"));
}

TEST_F(TcpTest, ACallbackThatThrowsHarmsNobody) {
  auto server = serve({.token = token_, .on_connect = [](const std::string&) { throw std::runtime_error("boom"); }});
  join(*server, token_, "node 1")->set("k", "v");
  EXPECT_EQ(log_.count("boom"), 1u);
}

TEST_F(TcpTest, AnOverlongNameIsTheCallersFault) {
  const auto server = serve();
  EXPECT_THROW(join(*server, token_, std::string(300, 'n')), UsageError);
}

TEST_F(TcpTest, PingAndClock) {
  const auto server = serve();
  const auto store = join(*server, token_);
  EXPECT_GT(store->ping(0, Deadline::in(20s)), 0ns);
  EXPECT_LT(store->ping(Store::kMaxValue, Deadline::in(60s)), 60s);
  EXPECT_THROW(store->ping(Store::kMaxValue + 1, Deadline::in(1s)), UsageError);
  const int64_t now = std::chrono::duration_cast<Millis>(std::chrono::system_clock::now().time_since_epoch()).count();
  EXPECT_NEAR(static_cast<double>(store->server_time_ms()), static_cast<double>(now), 10'000);
}

TEST_F(TcpTest, ManyWaitersAtOnce) {
  const auto server = serve();
  const auto store = join(*server, token_);
  std::vector<std::future<std::string>> waiters;
  for (int i = 0; i < 24; ++i)
    waiters.push_back(std::async(std::launch::async, [&] { return store->get("go", Deadline::in(30s)); }));
  store->set("go", "now");
  for (auto& waiter : waiters) EXPECT_EQ(waiter.get(), "now");
}

TEST_F(TcpTest, WhenTheServerGoesWaitersLearnItAtOnce) {
  auto server = serve();
  const Endpoint address = server->endpoint();
  const auto store = join(*server, token_);
  std::vector<std::future<std::string>> waiters;
  for (int i = 0; i < 4; ++i)
    waiters.push_back(std::async(std::launch::async, [&] { return store->get("never", Deadline::never()); }));
  RawClient parked(address);  // one that surely waits at the server
  parked.authenticate(token_);
  parked.send({.type = Type::get, .number = -1, .parts = {"never"}});
  const auto since = Clock::now();
  server.reset();
  for (auto& waiter : waiters) EXPECT_THAT(message_of<PeerError>([&] { waiter.get(); }), HasSubstr(to_string(address)));
  EXPECT_TRUE(parked.closed());
  EXPECT_LT(Clock::now() - since, 20s);
  EXPECT_THAT(message_of<PeerError>([&] { store->set("k", "v"); }), HasSubstr(to_string(address)));
  EXPECT_THAT(message_of<PeerError>([&] { store->list(""); }), HasSubstr(to_string(address)));
}

TEST_F(TcpTest, EnrolmentHandsOverTheToken) {
  const auto server = serve(TcpStoreServer::Enrolment{.allowed_ips = {{"127.0.0.1", 1}}});
  const Token got = enrol(server->endpoint(), Deadline::in(20s));
  EXPECT_EQ(got, token_);
  auto node = join(*server, got, "node 1");
  const auto again = [&] { enrol(server->endpoint(), Deadline::in(20s)); };
  EXPECT_THAT(message_of<PeerError>(again), HasSubstr("already joined"));
  EXPECT_EQ(server->counters().refused_enrolments, 1u);
}

TEST_F(TcpTest, WhoHasLeftMayEnrolAgain) {
  const auto server = serve(TcpStoreServer::Enrolment{.allowed_ips = {{"127.0.0.1", 1}}});
  join(*server, enrol(server->endpoint(), Deadline::in(20s)), "node 1").reset();
  const auto again = [&] {
    try {
      enrol(server->endpoint(), Deadline::in(20s));
      return true;
    } catch (const PeerError&) {
      return false;  // the server has not noticed yet
    }
  };
  EXPECT_TRUE(eventually(again));
}

// Else the first rank to end would let a stranger have the token.
TEST_F(TcpTest, ARankThatEndsFreesNoPlace) {
  Names went;
  const auto server =
      serve({.token = token_,
             .enrolment =
                 TcpStoreServer::Enrolment{
                     .max_joins = 1, .has_joined = [](const std::string& name) { return !name.starts_with("rank "); }},
             .on_disconnect = [&](const std::string& name) { went.add(name); }});
  const auto node = join(*server, enrol(server->endpoint(), Deadline::in(20s)), "node 1");
  join(*server, token_, "rank 1").reset();
  ASSERT_TRUE(eventually([&] { return went.get().size() == 1; }));
  const auto again = [&] { enrol(server->endpoint(), Deadline::in(20s)); };
  EXPECT_THAT(message_of<PeerError>(again), HasSubstr("all 1 places are taken"));
}

TEST_F(TcpTest, EnrolmentOfAStrangerIsRefusedWithTheReason) {
  const auto server = serve(TcpStoreServer::Enrolment{.allowed_ips = {{"192.0.2.1", 1}}});
  const auto ask = [&] { enrol(server->endpoint(), Deadline::in(20s)); };
  EXPECT_THAT(message_of<PeerError>(ask), HasSubstr("127.0.0.1 is not one of"));
}

TEST_F(TcpTest, NoEnrolmentWhereThereIsAToken) {
  const auto server = serve();
  const auto ask = [&] { enrol(server->endpoint(), Deadline::in(20s)); };
  EXPECT_THAT(message_of<PeerError>(ask), HasSubstr("TRIREME_TOKEN_FILE"));
}

TEST_F(TcpTest, TotalSizeIsLimited) {
  const auto server = serve({.token = token_, .max_bytes = 10'000});
  const auto store = join(*server, token_);
  EXPECT_THAT(message_of<UsageError>([&] { store->set("k", std::string(20'000, 'v')); }), HasSubstr("10000"));
  store->set("k", std::string(9'000, 'v'));
  EXPECT_THROW(store->set("l", std::string(9'000, 'v')), UsageError);
  EXPECT_TRUE(store->remove("k"));
  store->set("l", std::string(9'000, 'v'));
}

TEST_F(TcpTest, AListTooLongForOneMessageIsRefused) {
  const auto server = serve();
  const auto store = join(*server, token_);
  for (const char* key : {"a", "b", "c", "d"}) store->set(key, std::string(Store::kMaxValue, 'v'));
  EXPECT_THAT(message_of<UsageError>([&] { store->list(""); }), HasSubstr("longer prefix"));
  EXPECT_EQ(store->list("a").size(), 1u);
}

TEST_F(TcpTest, Ipv6) {
  if (!interface_with("::1")) GTEST_SKIP() << "this machine has no IPv6 loopback";
  const TcpStoreServer server(listen_tcp("::1", 0), {.token = token_});
  join(server, token_)->set("k", "v");
  EXPECT_EQ(server.endpoint().host, "::1");
}

}  // namespace
}  // namespace trireme::store
