// The engine of the plugin; trireme/comm/engine/mpi.h is its face.
#pragma once

#include <memory>

#include "trireme/comm/engine/mpi.h"

namespace trireme::mpi {

std::unique_ptr<Engine> make_engine(const MpiOptions& options);

}  // namespace trireme::mpi
