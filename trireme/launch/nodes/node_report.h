// The way between the nodes, measured: what `trireme doctor --ips a,b` prints.
#pragma once

#include <string>
#include <vector>

#include "trireme/launch/nodes/meeting.h"

namespace trireme::launch {

/// One row: how `from` reaches `reach.node`.
struct PairReport {
  int from = 0;
  Reach reach;
};

/// Nodes measure one after the other, so that they do not disturb each other. Returns all rows on every node.
std::vector<PairReport> measure_pairs(Meeting& meeting);

/// As a table with latency, throughput and clock difference. Pure.
std::string pairs_table(const std::vector<NodeInfo>& nodes, const std::vector<PairReport>& pairs);

}  // namespace trireme::launch
