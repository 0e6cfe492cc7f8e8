// The first line of a distributed program.
//
//   World world = init_parallel_env();
//   torch::Tensor x = torch::ones(3, world.device());
//   all_reduce(x);                                         // a World is the Group of all ranks
//
// Started by `trireme launch` or spawn() the world is the job; started by mpirun, srun or torchrun it is theirs.
// Started alone it is a world of one, so the same program runs without a launcher.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "trireme/comm/group.h"
#include "trireme/core/parallel_env.h"

namespace trireme {

class Store;

/// A small value; copies mean the same world. May be used from several threads.
class World : public Group {
 public:
  /// Everything the launcher said about this process.
  const ParallelEnv& env() const;
  /// The job's store; alone, one in memory. Null under mpirun, which hosts none.
  std::shared_ptr<Store> store() const;
  /// Where this rank computes: its GPU when it has one, else the CPU.
  c10::Device device() const;

  struct State;
  World(const Group& group, std::shared_ptr<const State> state) : Group(group), state_(std::move(state)) {}

 private:
  std::shared_ptr<const State> state_;
};

struct InitOptions {
  bool strict = false;       ///< outside of a launcher: throw instead of being a world of one (also TRIREME_STRICT=1)
  int timeout_seconds = 60;  ///< to reach the job's store
  std::string backend = {};  ///< for CPU tensors: auto, shm, gloo or hierarchical; empty: TRIREME_BACKEND, else auto
  /// Of a collective; empty: PADDLE_PG_TIMEOUT, else 30 minutes.
  std::optional<std::chrono::milliseconds> timeout = {};
  std::optional<bool> check = {};  ///< compare the ranks' calls before each collective; empty: TRIREME_CHECK, else yes
};

/// Reads the environment, connects to the job's store, finds out where the other ranks are, and connects to them. The
/// second and later calls return the same world. Throws UsageError for a half-set environment, naming what is missing,
/// and PeerError when the store or a rank does not answer.
World init_parallel_env(const InitOptions& options = {});

/// Whether init_parallel_env() has been called.
bool is_initialized();

/// "shm", "gloo", …: what moves the CPU tensors of a group. "nccl" when CUDA tensors are what this rank computes with.
std::string get_backend(const Group& group = Group::world());

/// Ends the world of this process; init_parallel_env() may then make a new one when all ranks do. Groups and models
/// that are still held live on.
void destroy_parallel_env();

}  // namespace trireme
