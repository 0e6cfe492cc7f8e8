#include <hwloc.h>

#include <memory>

#include "trireme/launch/machine/affinity.h"

namespace trireme::launch {
namespace {

using TopologyHandle = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

std::vector<int> units_below(hwloc_topology_t topology, hwloc_const_cpuset_t set) {
  std::vector<int> units;
  const int count = hwloc_get_nbobjs_inside_cpuset_by_type(topology, set, HWLOC_OBJ_PU);
  for (int i = 0; i < count; ++i)
    units.push_back(static_cast<int>(
        hwloc_get_obj_inside_cpuset_by_type(topology, set, HWLOC_OBJ_PU, static_cast<unsigned>(i))->os_index));
  return units;
}

}  // namespace

Topology machine_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return {};
  const TopologyHandle topology(raw, &hwloc_topology_destroy);
  if (hwloc_topology_load(raw) != 0) return {};
  Topology groups;
  const int nodes = hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_NUMANODE);
  for (int i = 0; i < nodes; ++i) {
    const hwloc_obj_t node = hwloc_get_obj_by_type(raw, HWLOC_OBJ_NUMANODE, static_cast<unsigned>(i));
    auto units = units_below(raw, node->cpuset);
    if (!units.empty()) groups.push_back(std::move(units));  // memory-only nodes have none
  }
  return groups;
}

}  // namespace trireme::launch
