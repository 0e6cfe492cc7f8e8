// This machine's part in a job: devices, processes, ports.
#pragma once

#include "trireme/launch/machine/ports.h"
#include "trireme/launch/nodes/seat.h"
#include "trireme/launch/plan.h"

namespace trireme::launch {

struct LocalNode {
  NodeInfo info;
  NodePorts ports;
};

/// Looks at the machine (cores, GPUs), decides how many processes run here and keeps their ports. Logs what is unusual.
/// Throws UsageError as choose_devices() and NodePorts::keep() do.
LocalNode describe_local_node(const Request& request, const Seat& seat);

}  // namespace trireme::launch
