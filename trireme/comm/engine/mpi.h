// Collectives by the MPI library that the program was started with (mpirun, srun). MPI lives in a plugin of its own,
// libtrireme_mpi.so, which is loaded when first asked for: no program that uses Trireme needs an MPI library to start.
//
//   if (const auto reason = why_no_mpi()) throw UsageError("no MPI: {}", *reason);
//   auto engine = make_mpi_engine({.world_ranks = {0, 2}, .timeout = 30min});      // on world ranks 0 and 2
//
// The plugin is looked for in TRIREME_PLUGIN_DIR, in ../lib beside the program, and where Trireme was installed or
// built. MPI is initialised on first use (MPI_THREAD_MULTIPLE) unless the program has done so, and finalised at exit
// by whoever initialised it.
//
// MPI cannot take back an operation that has begun. After a PeerError, therefore, its buffers may still be written to
// and no engine of this process makes another MPI call: leave the program. At its exit MPI_Abort ends the whole job,
// which is also what happens when it ends with a status other than 0; so no rank hangs in MPI_Finalize.
//
// all_reduce and the others reduce in the library's order. All ranks get the same bits as far as the library's own
// algorithms give them, which Open MPI's and MPICH's do. Half and bfloat16 are rounded at each step, averages of them
// are computed in float and rounded once.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/engine/engine.h"
#include "trireme/core/clock.h"

namespace trireme::comm {

struct MpiOptions {
  std::string group{};                                    ///< its name, for PeerError::group()
  std::vector<int> world_ranks{};                         ///< the group, in its order; empty: all of MPI_COMM_WORLD
  Clock::duration timeout = std::chrono::minutes(30);     ///< for one operation, and for meeting
  size_t max_elements = std::numeric_limits<int>::max();  ///< in one MPI call; less only in tests
};

/// The reason why make_mpi_engine() would throw, or nothing when the plugin is there.
std::optional<std::string> why_no_mpi();

/// Initialises MPI and meets the others of the group: every one of them must call it, with the same list. UsageError: no
/// plugin, MPI is not usable, this process is not in the list, or the list is impossible. PeerError: a rank did not come
/// in time.
std::unique_ptr<Engine> make_mpi_engine(const MpiOptions& options);

}  // namespace trireme::comm
