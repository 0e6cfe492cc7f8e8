// The whole public API at a glance.
//
//   #include <trireme/trireme.h>
//
//   int main() {
//     auto world = trireme::init_parallel_env();   // under `trireme launch`; alone: rank 0 of 1
//     …
//   }
#pragma once

#include "trireme/core/error.h"         // UsageError, SystemError, PeerError
#include "trireme/core/log.h"           // set_log_sink, set_log_level
#include "trireme/core/parallel_env.h"  // ParallelEnv, get_rank, get_world_size
#include "trireme/core/version.h"       // kVersion
#include "trireme/launch/spawn.h"       // spawn
#include "trireme/parallel/init.h"      // init_parallel_env, World
#include "trireme/store/store.h"        // Store: the job's keys and values
