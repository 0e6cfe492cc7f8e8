// The plan as people read it: the box that launch prints at the start, and the long form of --dry-run. Pure.
#pragma once

#include <string>

#include "trireme/launch/plan.h"

namespace trireme::launch {

/// "Local start 2 processes. First process distributed environment info (Only For Debug):" and the box below it, as
/// Paddle's users know them. `first` is the node's first worker. Ends with a newline.
std::string environment_table(const WorkerPlan& first, int local_processes);

/// Every rank with its node, device, endpoint, command and environment: the first rank's in full, of the others what
/// differs.
std::string dry_run_text(const JobPlan& plan);

}  // namespace trireme::launch
