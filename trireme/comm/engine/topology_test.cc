#include "trireme/comm/engine/topology.h"

#include <gtest/gtest.h>

#include "trireme/core/error.h"

namespace trireme::comm {
namespace {

using Ranks = std::vector<int>;

TEST(Topology, RanksMayAlternateBetweenHosts) {
  const Topology topology({0, 1, 0, 1});
  EXPECT_EQ(topology.ranks(), 4);
  EXPECT_EQ(topology.hosts(), 2);
  EXPECT_EQ(topology.members(0), (Ranks{0, 2}));
  EXPECT_EQ(topology.members(1), (Ranks{1, 3}));
  EXPECT_EQ(topology.place_of(2), 1);
  EXPECT_EQ(topology.column(1), (Ranks{2, 3}));
  EXPECT_TRUE(topology.even());
}

TEST(Topology, HostsMayHaveDifferentNumbersOfRanks) {
  const Topology topology({0, 0, 1, 0});
  EXPECT_FALSE(topology.even());
  EXPECT_TRUE(topology.is_full(0));
  EXPECT_FALSE(topology.is_full(1));
  EXPECT_EQ(topology.column(2), (Ranks{3}));
  EXPECT_EQ(topology.host_of(2), 1);
}

TEST(Topology, HostsInAnotherOrderAreRefused) {
  EXPECT_THROW(Topology({1, 0}), UsageError);
  EXPECT_THROW(Topology({0, 2}), UsageError);
  EXPECT_THROW(Topology({0, -1}), UsageError);
}

TEST(Topology, NamesRanks) {
  EXPECT_EQ(name_ranks({3}), "rank 3");
  EXPECT_EQ(name_ranks({2, 3}), "ranks 2, 3");
}

}  // namespace
}  // namespace trireme::comm
