// A store under a launcher that is not ours: torchrun's own, or one that rank 0 opens at the master's address.
#pragma once

#include <chrono>
#include <memory>

#include "trireme/core/parallel_env.h"
#include "trireme/store/store.h"

namespace trireme::comm {

/// Null for a world of one or without an address to meet at. It has no authentication: that is up to the launcher.
/// list() is not available.
std::shared_ptr<Store> connect_foreign_store(const ParallelEnv& env, std::chrono::milliseconds timeout);

}  // namespace trireme::comm
