// Collectives between ranks of one host through shared memory (trireme/comm/engine/shm) as an engine.
#pragma once

#include <memory>

#include "trireme/comm/engine/engine.h"
#include "trireme/comm/engine/shm/group.h"

namespace trireme {

/// Meets the other ranks, as shm::Group::join does. The store must outlive the engine: pairs of ranks that send to each
/// other meet there when they first do.
std::unique_ptr<Engine> make_shm_engine(std::shared_ptr<Store> store, const shm::Group::Options& options,
                                        Deadline deadline);

}  // namespace trireme
