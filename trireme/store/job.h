// A program's side of the launcher: who it is, and the store it shares with the other processes. No tensors; with them,
// use init_parallel_env() (trireme/parallel/init.h).
//
//   Job job = connect_job();
//   job.store->set(fmt::format("ready/{}", job.env.rank), "1");
//
// Started by `trireme launch` or spawn() the store is the job's. Started alone it is one in memory, in a job of one
// process, so the same program runs without a launcher.
#pragma once

#include <memory>

#include "trireme/core/cxx20.h"
#include "trireme/core/parallel_env.h"

namespace trireme {

class Store;

struct Job {
  ParallelEnv env;               ///< everything the launcher said about this process
  std::shared_ptr<Store> store;  ///< null only under a foreign launcher, which hosts none of ours
};

struct JobOptions {
  bool strict = false;       ///< outside of a launcher: throw instead of being alone (also TRIREME_STRICT=1)
  int timeout_seconds = 60;  ///< to reach the store
};

/// Reads the environment and connects to the store, at each call again. Throws UsageError for a half-set environment,
/// naming what is missing, and PeerError when the store does not answer.
Job connect_job(const JobOptions& options = {});

}  // namespace trireme
