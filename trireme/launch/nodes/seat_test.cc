#include "trireme/launch/nodes/seat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/core/error.h"
#include "trireme/core/test_support.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

const std::vector<Interface> kMachine{
    {"lo", "127.0.0.1", true}, {"eth0", "10.0.0.2", false}, {"eth0", "fd00::2", false}};

std::string refusal(const Request& request) {
  return trireme::refusal([&] { find_seat(request, kMachine); });
}

TEST(Seat, OneNodeStaysOnLoopback) {
  const Seat seat = find_seat({}, kMachine);
  EXPECT_EQ(seat.nodes, 1);
  EXPECT_EQ(seat.address, "127.0.0.1");
  EXPECT_EQ(seat.interface, "lo");
  EXPECT_FALSE(seat.meeting);
}

TEST(Seat, IpsGiveTheNodesNumberAndTheMeetingPlace) {
  const Seat seat = find_seat({.hosts = {{"10.0.0.1"}, {"10.0.0.2"}}}, kMachine);
  EXPECT_EQ(seat.nodes, 2);
  EXPECT_EQ(seat.node, 1);
  EXPECT_EQ(seat.address, "10.0.0.2");
  EXPECT_EQ(seat.interface, "eth0");
  EXPECT_EQ(seat.meeting, (Endpoint{"10.0.0.1", 6069}));
  EXPECT_EQ(seat.peer_ips, (std::vector<std::string>{"10.0.0.1", "10.0.0.2"}));
  EXPECT_FALSE(seat.may_host);
}

TEST(Seat, TheFirstOfTheIpsHosts) {
  const Seat seat = find_seat({.hosts = {{"10.0.0.2"}, {"10.0.0.1"}}, .start_port = 17000}, kMachine);
  EXPECT_TRUE(seat.must_host);
  EXPECT_EQ(seat.meeting, (Endpoint{"10.0.0.2", 16999}));
}

TEST(Seat, IPv6Works) {
  const Seat seat = find_seat({.hosts = {{"fd00::1"}, {"fd00::2"}}}, kMachine);
  EXPECT_EQ(seat.node, 1);
  EXPECT_EQ(seat.address, "fd00::2");
}

TEST(Seat, AMachineNotInTheListIsToldItsAddresses) {
  EXPECT_THAT(refusal({.hosts = {{"10.0.0.7"}, {"10.0.0.8"}}}),
              AllOf(HasSubstr("10.0.0.7,10.0.0.8"), HasSubstr("10.0.0.2 (eth0)"), HasSubstr("--host")));
}

TEST(Seat, HostChoosesAmongSeveralOwnAddresses) {
  const Seat seat = find_seat({.hosts = {{"10.0.0.2"}, {"127.0.0.3"}}, .host = "127.0.0.3"}, kMachine);
  EXPECT_EQ(seat.node, 1);
}

// A PeerError on a machine without a network, whose name server cannot tell.
TEST(Seat, AnUnknownNameIsNamed) {
  const Request request{.hosts = {{"10.0.0.2"}, {"no-such-host.invalid"}}};
  EXPECT_THAT(trireme::refusal<Error>([&] { find_seat(request, kMachine); }), HasSubstr("no-such-host.invalid"));
}

TEST(Seat, TheNameOfTheMasterMayComeLater) {
  const CaughtLog log;
  Request request{.nodes = 2, .master = Endpoint{"no-such-host.invalid", 7000}, .join_timeout = 3s};
  EXPECT_THAT(trireme::refusal<Error>([&] { find_seat(request, kMachine); }), HasSubstr("no-such-host.invalid"));
  const size_t tries = log.count("waiting for the name behind --master");
  EXPECT_GE(tries, 1u);
  request.dry_run = true;
  EXPECT_THAT(trireme::refusal<Error>([&] { find_seat(request, kMachine); }), HasSubstr("no-such-host.invalid"));
  EXPECT_EQ(log.count("waiting"), tries) << "a dry run does not wait";
}

TEST(Seat, TheMastersMachineMayHostTheOthersNot) {
  Request request{.nodes = 2, .master = Endpoint{"10.0.0.2", 7000}};
  EXPECT_TRUE(find_seat(request, kMachine).may_host);
  request.node_rank = 1;
  EXPECT_FALSE(find_seat(request, kMachine).may_host);
}

TEST(Seat, RankZeroMustBeTheMastersMachine) {
  EXPECT_THAT(refusal({.nodes = 2, .master = Endpoint{"10.0.0.9", 7000}, .node_rank = 0}),
              AllOf(HasSubstr("10.0.0.9"), HasSubstr("10.0.0.2 (eth0)")));
}

TEST(Seat, WithoutAnAddressThisNodeHostsOnAFreePort) {
  const Seat seat = find_seat({.nodes = 2}, kMachine);
  EXPECT_TRUE(seat.must_host);
  EXPECT_EQ(seat.meeting, (Endpoint{"10.0.0.2", 0}));
  EXPECT_THAT(refusal({.nodes = 2, .node_rank = 1}), HasSubstr("--master"));
}

TEST(Seat, AHostThatIsNotHereIsRefused) {
  EXPECT_THAT(refusal({.host = "10.0.0.9"}), HasSubstr("10.0.0.9 is not an address of this machine"));
}

}  // namespace
}  // namespace trireme::launch
