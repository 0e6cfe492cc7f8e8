// What only a real etcd can show: leases, restarts, loss. The contract itself is in contract_test.cc.
#include "trireme/store/etcd_store.h"

#include <gmock/gmock.h>

#include <future>
#include <nlohmann/json.hpp>

#include "trireme/store/etcd_gateway.h"
#include "trireme/store/test_support.h"

namespace trireme::store {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class EtcdTest : public ::testing::Test {
 protected:
  EtcdStore::Options options(std::chrono::seconds ttl = 0s) const {
    return {.server = etcd_.endpoint(), .prefix = "job/", .lease_ttl = ttl, .patience = 20s};
  }

  CaughtLog log_;
  EtcdProcess etcd_;
};

TEST_F(EtcdTest, ALeaseKeepsKeysWhileItsStoreLives) {
  EtcdStore watcher(options());
  auto member = std::make_unique<EtcdStore>(options(1s));
  member->set("node 1", "here");
  const Deadline longer_than_the_lease = Deadline::in(3s);
  ASSERT_TRUE(eventually([&] { return watcher.try_get("node 1") != "here" || longer_than_the_lease.passed(); }));
  EXPECT_EQ(watcher.try_get("node 1"), "here");
  member.reset();
  EXPECT_EQ(watcher.try_get("node 1"), std::nullopt);  // at once, not after the lease
}

TEST_F(EtcdTest, AnEndedLeaseIsReported) {
  EtcdStore watcher(options());
  EtcdStore member(options(2s));
  member.set("node 1", "here");
  EtcdGateway gateway(etcd_.endpoint(), 10s);
  const Json leases = gateway.post("/v3/lease/leases", Json::object(), EtcdGateway::Repeat::harmless);
  gateway.post("/v3/lease/revoke", {{"ID", leases["leases"][0]["ID"]}}, EtcdGateway::Repeat::harmless);
  EXPECT_EQ(watcher.try_get("node 1"), std::nullopt);
  std::string text;
  EXPECT_TRUE(eventually([&] {  // etcd says it first, and the keeper as soon as it has asked
    text = message_of<PeerError>([&] { member.set("node 1", "still here"); });
    return text.find("lease of 2 s") != std::string::npos;
  })) << text;
}

TEST_F(EtcdTest, ALeaseThatIsNotRenewedRunsOut) {
  EtcdStore member(options(2s));
  EXPECT_GT(member.lease_left(), 0s);
  EXPECT_LE(member.lease_left(), 2s);
  etcd_.kill();
  EXPECT_TRUE(eventually([&] { return member.lease_left() == 0s; }));
  etcd_.start();
  EXPECT_TRUE(eventually([&] { return member.lease_left() > 0s; })) << "etcd keeps leases over a restart";
}

TEST_F(EtcdTest, ARestartIsWaitedOut) {
  EtcdStore store(options());
  store.set("before", "kept");
  auto waiter = std::async(std::launch::async, [&] { return store.get("after", Deadline::in(40s)); });
  etcd_.kill();
  etcd_.start();
  EXPECT_EQ(store.get("before", Deadline::in(30s)), "kept");
  store.set("after", "here");
  EXPECT_EQ(waiter.get(), "here");
}

TEST_F(EtcdTest, ALostEtcdIsNamed) {
  EtcdStore store({.server = etcd_.endpoint(), .patience = 20s});
  EtcdStore hasty({.server = etcd_.endpoint(), .patience = 100ms});
  etcd_.kill();
  const auto since = Clock::now();
  const std::string text = message_of<PeerError>([&] { hasty.set("k", "v"); });
  EXPECT_THAT(text, HasSubstr(to_string(etcd_.endpoint())));
  EXPECT_THAT(text, HasSubstr("etcdctl"));
  EXPECT_THROW(store.get("k", Deadline::in(100ms)), PeerError);
  EXPECT_LT(Clock::now() - since, 10s);
  EXPECT_THROW(EtcdStore({.server = etcd_.endpoint(), .patience = 100ms}), PeerError);
}

TEST_F(EtcdTest, ValuesAboveEtcdsOwnLimitAreTheCallersFault) {
  EtcdStore store(options());
  EXPECT_THAT(message_of<UsageError>([&] { store.set("k", std::string(4u << 20, 'v')); }), HasSubstr("large"));
  store.set("k", "v");
}

TEST(EtcdGatewayTest, AnotherProgramOnThePort) {
  const UniqueFd listener = listen_tcp("127.0.0.1", 0);
  const Endpoint address{"127.0.0.1", port_of(local_address(listener.get()))};
  std::thread stranger([&] {
    const UniqueFd client(::accept(listener.get(), nullptr, nullptr));
    wait_readable(client.get(), Deadline::in(20s));
    write_all(client.get(), "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
    char byte;
    while (::recv(client.get(), &byte, 1, 0) > 0) {
    }
  });
  EtcdGateway gateway(address, 5s);
  const auto post = [&] { gateway.post("/v3/kv/range", Json::object(), EtcdGateway::Repeat::harmless); };
  EXPECT_THAT(message_of<PeerError>(post), HasSubstr("is it etcd"));
  ::shutdown(listener.get(), SHUT_RDWR);
  stranger.join();
}

}  // namespace
}  // namespace trireme::store
