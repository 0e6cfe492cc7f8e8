// The first line of a distributed program.
//
//   World world = init_parallel_env();
//   fmt::print("rank {} of {}\n", world.rank(), world.size());
//
// Started by `trireme launch` or spawn() the world is the job. Started alone it is a world of one, so the same program
// runs without a launcher. Under torchrun or Paddle's launcher the world is theirs; there is no job store then.
#pragma once

#include <memory>

#include "trireme/core/parallel_env.h"
#include "trireme/core/rank_info.h"

namespace trireme {

class Store;

/// A small value; copies mean the same world. May be used from several threads.
class World {
 public:
  int rank() const;
  int size() const;
  /// Everything the launcher said about this process.
  const ParallelEnv& env() const;
  /// The job's store; alone, one in memory. Null only under a foreign launcher, which hosts none of ours.
  std::shared_ptr<Store> store() const;
  operator RankInfo() const {
    return {rank(), size()};
  }  // NOLINT(google-explicit-constructor): a world is a rank and a size

  struct State;
  explicit World(std::shared_ptr<const State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<const State> state_;
};

struct InitOptions {
  bool strict = false;       ///< outside of a launcher: throw instead of being a world of one (also TRIREME_STRICT=1)
  int timeout_seconds = 60;  ///< to reach the job's store
};

/// Reads the environment and connects to the job's store. The second and later calls return the same world. Throws
/// UsageError for a half-set environment, naming what is missing, and PeerError when the store does not answer.
World init_parallel_env(const InitOptions& options = {});

/// Whether init_parallel_env() has been called.
bool is_initialized();

}  // namespace trireme
