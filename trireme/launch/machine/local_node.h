// This machine's part in a job: devices, processes, ports.
#pragma once

#include "trireme/launch/machine/ports.h"
#include "trireme/launch/nodes/seat.h"
#include "trireme/launch/plan.h"

namespace trireme::launch {

struct LocalNode {
  NodeInfo info;
  NodePorts ports;
  size_t usual_open_files = 0;  ///< how many the launcher might open before it took as many as it may have
};

/// Looks at the machine (cores, GPUs), decides how many processes run here and keeps their ports. Takes
/// all the open files that this process may have. Logs what is unusual.
/// Throws UsageError as choose_devices() and NodePorts::keep() do.
LocalNode describe_local_node(const Request& request, const Seat& seat);

}  // namespace trireme::launch
