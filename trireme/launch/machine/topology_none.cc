// Built where hwloc is missing: memory nodes are unknown, so all usable cores are one group.
#include <sched.h>

#include "trireme/launch/machine/affinity.h"

namespace trireme::launch {

Topology machine_topology() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return {};
  std::vector<int> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cores.push_back(cpu);
  return {cores};
}

}  // namespace trireme::launch
