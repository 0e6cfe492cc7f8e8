// What the launcher told this process about itself, read from the environment alone: no socket, no tensor. It can be
// asked before init_parallel_env().
//
//   ParallelEnv env = ParallelEnv::from_environment();
//   if (env.rank == 0) save(model);
//
// Paddle's names (PADDLE_TRAINER_ID …), torchrun's (RANK …) or both are understood; without them those of mpirun (Open
// MPI, MPICH, Intel), without these those of a task that srun started. Without any the process is alone: a world of one
// with `launched` false. A UsageError names the variable that is missing when only some are set, and both variables
// when two contradict each other.
//
// Deviation from Paddle, whose ParallelEnv().local_rank is the *global* rank: here `local_rank` counts on one node.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/core/cxx20.h"
#include "trireme/core/endpoint.h"
#include "trireme/core/rank_info.h"

namespace trireme {

struct ParallelEnv {
  bool launched = false;  // a launcher or spawn() started this process
  std::string launcher;   // "trireme", "torchrun", "paddle", "mpi" or "slurm", by whose names were found; "" when alone

  int rank = 0;        // over all nodes
  int world_size = 1;  // workers over all nodes
  int local_rank = 0;  // on this node
  int local_world_size = 1;
  int node_rank = 0;  // mpirun does not tell; taken from the ranks as if all nodes had equally many
  int node_count = 1;
  int restart_count = 0;

  // "gpu" or "cpu" when the launcher said so. "auto": it did not; then GPU number device_id if there is one, else CPU.
  std::string device_type = "auto";
  int device_id = 0;  // index among the visible GPUs

  std::string current_endpoint;                // host:port of this worker; empty under torchrun
  std::vector<std::string> trainer_endpoints;  // in rank order; empty under torchrun
  std::optional<Endpoint> master;  // where rank 0's store is; nothing when alone, or when mpirun and srun were not told

  int nrings = 1;                                     // FLAGS_nccl_nrings, 1 to 8
  std::chrono::milliseconds pg_timeout{30 * 60'000};  // PADDLE_PG_TIMEOUT

  int nranks() const { return world_size; }
  operator RankInfo() const { return {rank, world_size}; }

  using Variables = std::map<std::string, std::string>;
  /// Reads the environment; endpoints that were too long for it come from backup_env.<rank>.json.
  static ParallelEnv from_environment();
  /// Pure. An empty value counts as unset.
  static ParallelEnv from_variables(const Variables& variables);
};

/// The rank and the number of workers that the environment tells, 0 of 1 when alone. Throw UsageError as
/// ParallelEnv does.
int get_rank();
int get_world_size();

}  // namespace trireme
