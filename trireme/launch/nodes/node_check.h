// Can this node reach that one, how fast, and do their clocks agree?
#pragma once

#include <string>

#include "trireme/core/net.h"
#include "trireme/core/token.h"

namespace trireme::launch {

struct Reach {
  int node = 0;
  std::string error;  // empty: reached
  double round_trip_ms = 0;
  double clock_skew_ms = 0;         // the other's clock minus ours
  double megabytes_per_second = 0;  // only when asked for
};

/// Connects to a node's probe and pings it; waits at most 5 s. Never throws for an unreachable node.
Reach reach_node(int node, const Endpoint& probe, const Token& token);
/// The same, and the throughput of 64 MiB there and back.
Reach measure_node(int node, const Endpoint& probe, const Token& token);

}  // namespace trireme::launch
