// Which cores each worker of a node is pinned to (--bind).
#pragma once

#include <vector>

#include "trireme/launch/options/request.h"

namespace trireme::launch {

/// The cores this process may use, grouped by memory node, hyper-threads of one core next to each other.
using Topology = std::vector<std::vector<int>>;

/// Read from the machine by hwloc. Without hwloc at build time: one group with all usable cores.
Topology machine_topology();

/// The cores of each of `workers` local workers: nothing for Bind::none; contiguous equal shares of all cores for
/// Bind::core (several workers share a core when there are too few); whole memory nodes in turn for Bind::numa. Pure.
std::vector<std::vector<int>> share_cores(Bind bind, const Topology& topology, int workers);

}  // namespace trireme::launch
