// From a worker's plan to a process: what both the launcher and spawn() hand to proc.
#pragma once

#include <map>
#include <string>

#include "trireme/core/net.h"
#include "trireme/launch/plan.h"
#include "trireme/launch/report/diagnosis.h"
#include "trireme/proc/process_set.h"

namespace trireme::launch {

/// Where the job's store is and what proves that a worker belongs to it.
struct WorkerResources {
  Endpoint store;
  int token_fd = -1;   // holds the job's token
  int listen_fd = -1;  // bound to the worker's endpoint
  int watch_fd = -1;   // in which it records its collectives (watch/ring.h); -1: not watched
};

using VariableMap = std::map<std::string, std::string>;

/// The worker's whole environment: this process' own, what the plan takes out and adds, and the way to the job's store.
VariableMap worker_variables(const WorkerPlan& plan, const WorkerResources& resources);

/// The process; `variables` as above, after whatever the caller changed.
proc::ProcessSpec worker_process(const WorkerPlan& plan, const WorkerResources& resources,
                                 const VariableMap& variables);

/// How it ended, for the diagnosis.
Ending to_ending(const proc::Event& exited);

}  // namespace trireme::launch
