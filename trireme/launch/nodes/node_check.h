// Can this node reach that one, how fast, and do their clocks agree? What `trireme doctor --ips a,b` prints.
#pragma once

#include <string>
#include <vector>

#include "trireme/core/net.h"
#include "trireme/core/token.h"
#include "trireme/launch/nodes/meeting.h"

namespace trireme::launch {

struct Reach {
  int node = 0;
  std::string error = {};  // printable; empty: reached
  double round_trip_ms = 0;
  double clock_skew_ms = 0;         // the other's clock minus ours
  double megabytes_per_second = 0;  // only when asked for
};

enum class ReachTest {
  ping,
  throughput,  // a ping, and 64 MiB there and back
};

/// Whether a node looks at the way to another one. With many nodes not every pair is tried: the coordinator and the
/// next two neighbours tell enough.
bool should_try(int self, int other, int nodes);

/// Connects to a node's probe and tests the way. Never throws for an unreachable node.
Reach reach_node(int node, const Endpoint& probe, const Token& token, ReachTest test, Millis patience = Millis(5'000));

/// One row: how `from` reaches `reach.node`.
struct PairReport {
  int from = 0;
  Reach reach;
};

/// What another one of the `nodes` has measured. Throws PeerError when the text is not that.
std::vector<Reach> reaches_from_json(const std::string& text, int nodes);

/// Nodes measure one after the other, so that they do not disturb each other. Returns all rows on every node.
std::vector<PairReport> measure_pairs(Meeting& meeting);

/// As a table with latency, throughput and clock difference. Pure.
std::string pairs_table(const std::vector<NodeInfo>& nodes, const std::vector<PairReport>& pairs);

}  // namespace trireme::launch
