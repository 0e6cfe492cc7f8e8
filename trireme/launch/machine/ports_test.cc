#include "trireme/launch/machine/ports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <set>

#include "trireme/core/error.h"
#include "trireme/core/net.h"
#include "trireme/core/test_support.h"

namespace trireme::launch {
namespace {

using testing::HasSubstr;

uint16_t some_free_port() {
  return port_of(local_address(reserve_port("127.0.0.1", 0).get()));
}

TEST(NodePorts, FreePortsAreDistinctAndStayOurs) {
  const NodePorts first = NodePorts::keep({.address = "127.0.0.1", .processes = 50});
  const NodePorts second = NodePorts::keep({.address = "127.0.0.1", .processes = 50});
  std::set<uint16_t> all(first.ports().begin(), first.ports().end());
  all.insert(second.ports().begin(), second.ports().end());
  all.insert(first.master_port());
  all.insert(second.master_port());
  EXPECT_EQ(all.size(), 102u);
}

TEST(NodePorts, AForeignProgramCanBindAndListenOverAKeptPort) {
  const NodePorts ports = NodePorts::keep({.address = "127.0.0.1", .processes = 1});
  EXPECT_NO_THROW(listen_tcp("0.0.0.0", ports.master_port()));
  EXPECT_NO_THROW(listen_tcp("127.0.0.1", ports.ports()[0]));
}

TEST(NodePorts, OurOwnWorkerListensOnTheInheritedSocket) {
  const NodePorts ports = NodePorts::keep({.address = "127.0.0.1", .processes = 1});
  ASSERT_EQ(::listen(ports.socket(0), 1), 0);
  EXPECT_NO_THROW(connect_tcp({"127.0.0.1", ports.ports()[0]}, Deadline::in(std::chrono::seconds(5))));
}

TEST(NodePorts, AStartPortGivesConsecutiveOnesAndTheMaster) {
  const uint16_t start = some_free_port();
  const NodePorts ports = NodePorts::keep({.address = "127.0.0.1", .processes = 1, .start_port = start});
  EXPECT_EQ(ports.ports(), std::vector<uint16_t>{start});
  EXPECT_EQ(ports.master_port(), start);
}

TEST(NodePorts, AChosenPortSomeoneListensOnIsNamed) {
  const UniqueFd listener = listen_tcp("127.0.0.1", 0);
  const uint16_t port = port_of(local_address(listener.get()));
  const std::string message =
      refusal([&] { NodePorts::keep({.address = "127.0.0.1", .processes = 1, .start_port = port}); });
  EXPECT_THAT(message, HasSubstr("port " + std::to_string(port)));
  EXPECT_THAT(message, HasSubstr("--start_port"));
}

TEST(NodePorts, AChosenPortOfAnotherJobIsNamed) {
  const uint16_t port = some_free_port();
  const NodePorts first = NodePorts::keep({.address = "127.0.0.1", .processes = 1, .start_port = port});
  EXPECT_THAT(refusal([&] { NodePorts::keep({.address = "127.0.0.1", .processes = 1, .start_port = port}); }),
              HasSubstr("held by another Trireme job"));
}

}  // namespace
}  // namespace trireme::launch
