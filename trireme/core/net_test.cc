#include "trireme/core/net.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/core/clock.h"
#include "trireme/core/error.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

bool has_ipv6() {
  for (const Interface& interface : local_interfaces())
    if (interface.ip == "::1") return true;
  return false;
}

void expect_usage_error(const std::string& text, const std::string& word) {
  try {
    parse_endpoint(text, "--master");
    FAIL() << text;
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("--master"), std::string::npos) << error.what();
  }
}

TEST(Endpoints, Forms) {
  EXPECT_EQ(parse_endpoint("node1:6069", "x"), (Endpoint{"node1", 6069}));
  EXPECT_EQ(parse_endpoint("10.0.0.1:1", "x"), (Endpoint{"10.0.0.1", 1}));
  EXPECT_EQ(parse_endpoint("[fd00::1]:65535", "x"), (Endpoint{"fd00::1", 65535}));
  EXPECT_EQ(parse_endpoint("node1", "x", 7), (Endpoint{"node1", 7}));
  EXPECT_EQ(parse_endpoint("fd00::1", "x", 7), (Endpoint{"fd00::1", 7}));
  EXPECT_EQ(parse_endpoint("[fd00::1]", "x", 7), (Endpoint{"fd00::1", 7}));
  EXPECT_EQ(parse_endpoint("node1:9", "x", 7), (Endpoint{"node1", 9}));
}

TEST(Endpoints, WrongOnesAreNamed) {
  expect_usage_error("node1", "port is missing");
  expect_usage_error("fd00::1", "port is missing");
  expect_usage_error(":6069", "host is missing");
  expect_usage_error("", "host is missing");
  expect_usage_error("node1:0", "1 to 65535");
  expect_usage_error("node1:65536", "1 to 65535");
  expect_usage_error("node1:", "1 to 65535");
  expect_usage_error("[fd00::1:6069", "not closed");
  expect_usage_error("[fd00::1]6069", "may follow");
}

TEST(Endpoints, TextHasBracketsForIpv6) {
  EXPECT_EQ(to_string(Endpoint{"10.0.0.1", 80}), "10.0.0.1:80");
  EXPECT_EQ(to_string(Endpoint{"fd00::1", 80}), "[fd00::1]:80");
}

TEST(Resolve, NumbersAndNames) {
  EXPECT_EQ(resolve_ip("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(resolve_ip("::1"), "::1");
  EXPECT_EQ(resolve_ip("localhost"), "127.0.0.1") << "IPv4 comes first";
  EXPECT_EQ(port_of(resolve("127.0.0.1", 99).front()), 99);
}

TEST(Resolve, MappedIpv4IsShownAsIpv4) {
  EXPECT_EQ(resolve_ip("::ffff:10.0.0.1"), "10.0.0.1");
}

TEST(Resolve, AnUnknownNameIsNamed) {
  try {
    resolve("no-such-host.invalid", 1);
    FAIL();
  } catch (const Error& error) {  // PeerError on a machine without a network: its name server cannot tell
    EXPECT_NE(std::string(error.what()).find("no-such-host.invalid"), std::string::npos);
  }
}

// In a child without a network: no name server can be asked.
TEST(Resolve, ANameServerThatIsNotReachedIsAPeerError) {
  constexpr int kNoNamespace = 9;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) ::_exit(kNoNamespace);
    try {
      resolve("no-such-host.invalid", 1);
    } catch (const PeerError&) {
      ::_exit(0);
    } catch (...) {
    }
    ::_exit(1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoNamespace) GTEST_SKIP() << "no network namespaces here";
  EXPECT_EQ(status, 0);
}

TEST(Tcp, ListensOnAFreePortAndConnects) {
  const UniqueFd listener = listen_tcp("127.0.0.1", 0);
  const uint16_t port = port_of(local_address(listener.get()));
  ASSERT_NE(port, 0);
  const UniqueFd client = connect_tcp({"localhost", port}, Deadline::in(5s));
  tune_control_socket(client.get());
  EXPECT_EQ(port_of(peer_address(client.get())), port);
  EXPECT_EQ(ip_text(peer_address(client.get())), "127.0.0.1");
  int no_delay = 0;
  socklen_t length = sizeof no_delay;
  ::getsockopt(client.get(), IPPROTO_TCP, TCP_NODELAY, &no_delay, &length);
  EXPECT_EQ(no_delay, 1);
  tune_control_socket(client.get(), 20s);
  int silence = 0;
  ::getsockopt(client.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &silence, &length);
  EXPECT_EQ(silence, 20'000);
}

TEST(Tcp, Ipv6) {
  if (!has_ipv6()) GTEST_SKIP() << "no interface with ::1";
  const UniqueFd listener = listen_tcp("::1", 0);
  const UniqueFd client = connect_tcp({"::1", port_of(local_address(listener.get()))}, Deadline::in(5s));
  EXPECT_EQ(ip_text(peer_address(client.get())), "::1");
}

TEST(Tcp, ATakenPortIsASystemErrorThatNamesIt) {
  const UniqueFd listener = listen_tcp("127.0.0.1", 0);
  const uint16_t port = port_of(local_address(listener.get()));
  try {
    listen_tcp("127.0.0.1", port);
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_EQ(error.number(), EADDRINUSE);
    EXPECT_NE(std::string(error.what()).find(std::to_string(port)), std::string::npos) << error.what();
  }
}

TEST(Tcp, AReservedPortCanStillBeListenedOnButIsNotHandedOut) {
  const UniqueFd reserved = reserve_port("127.0.0.1", 0);
  const uint16_t port = port_of(local_address(reserved.get()));
  EXPECT_THROW(connect_tcp({"127.0.0.1", port}, Deadline::in(1s)), PeerError);
  const UniqueFd listener = listen_tcp("127.0.0.1", port);
  EXPECT_TRUE(connect_tcp({"127.0.0.1", port}, Deadline::in(5s)));
}

TEST(Tcp, ReservesOnEveryAddress) {
  const UniqueFd reserved = reserve_port("", 0);
  EXPECT_EQ(ip_text(local_address(reserved.get())), "0.0.0.0");
}

TEST(Tcp, ARefusalSaysThatNothingListens) {
  uint16_t port = 0;
  {
    const UniqueFd listener = listen_tcp("127.0.0.1", 0);
    port = port_of(local_address(listener.get()));
  }
  try {
    connect_tcp({"127.0.0.1", port}, Deadline::in(5s));
    FAIL();
  } catch (const PeerError& error) {
    EXPECT_NE(std::string(error.what()).find("nothing listens"), std::string::npos) << error.what();
  }
}

// A listener that never accepts and whose queue is full lets further connections hang.
TEST(Tcp, SilenceEndsAtTheDeadline) {
  const UniqueFd listener = listen_tcp("127.0.0.1", 0, 0);
  const Endpoint endpoint{"127.0.0.1", port_of(local_address(listener.get()))};
  std::vector<UniqueFd> fill;
  const auto start = Clock::now();
  try {
    for (int i = 0; i < 8; ++i) fill.push_back(connect_tcp(endpoint, Deadline::in(200ms)));
    FAIL() << "the queue never filled";
  } catch (const PeerError& error) {
    EXPECT_NE(std::string(error.what()).find("no answer"), std::string::npos) << error.what();
  }
  EXPECT_LT(Clock::now() - start, 3s);
}

TEST(Interfaces, LoopbackIsThere) {
  const auto loopback = interface_with("127.0.0.1");
  ASSERT_TRUE(loopback);
  EXPECT_EQ(loopback->name, "lo");
  EXPECT_TRUE(loopback->loopback);
  EXPECT_EQ(interface_with("127.0.0.53")->name, "lo");
  EXPECT_FALSE(interface_with("203.0.113.77"));
}

TEST(Interfaces, IPv4ComesFirstAndLinkLocalIsLeftOut) {
  bool v6_seen = false;
  for (const Interface& interface : local_interfaces()) {
    const bool v6 = interface.ip.find(':') != std::string::npos;
    EXPECT_FALSE(v6_seen && !v6) << interface.ip;
    EXPECT_FALSE(interface.ip.starts_with("fe80:"));
    v6_seen = v6_seen || v6;
  }
}

TEST(Interfaces, SourceAddressTowardsLoopback) {
  EXPECT_EQ(source_ip_towards("127.0.0.1"), "127.0.0.1");
  EXPECT_FALSE(host_name().empty());
}

}  // namespace
}  // namespace trireme
