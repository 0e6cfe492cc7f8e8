// The ranks that communicate with each other.
//
//   Group world = Group::world();                         // after init_parallel_env()
//   Group half  = world.split(world.rank() % 2);          // the even ranks, the odd ranks
//   Group pair  = world.new_group({0, 3});                // on others than 0 and 3: not a member
//   all_reduce(tensor, ReduceOp::sum, half);
//
// A small value; copies mean the same group. Groups are independent: each has its own connections and its own order of
// operations, so operations of several groups may overlap.
//
// Requires: all members call the same collectives on a group in the same order (from one thread each, or from several
// that agree on an order). Guarantees: when a rank dies, disagrees or is late, every member's operation ends with an
// error that says who; after that the group cannot be used.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/rank_info.h"

namespace trireme {

class Group {
 public:
  struct State;

  Group() = default;  ///< a group that this process does not belong to
  explicit Group(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  /// All ranks of the job. UsageError before init_parallel_env().
  static Group world();

  /// This process's place in the group, -1 when it is not a member.
  int rank() const;
  /// Number of members, 0 when this process is not one of them.
  int size() const;
  bool is_member() const { return state_ != nullptr; }
  /// The members' ranks in the world, in the order of their ranks here.
  const std::vector<int>& ranks() const;

  /// The group of these ranks *of this group*, in this order. Only they need to call it; on others the result is not a
  /// member. UsageError: a rank that does not exist or is named twice.
  Group new_group(const std::vector<int>& ranks) const;
  /// Called by all members: those with the same `color` form a group, ordered by `key`, then by rank. A negative color
  /// joins none.
  Group split(int color, int key = 0) const;

  /// What moves CPU tensors: "local", "shm", "gloo", "hierarchical" or "mpi".
  std::string backend() const;
  /// What moves CUDA tensors: "nccl", or the CPU backend's name with "staged " before it.
  std::string cuda_backend() const;
  /// How long an operation may wait for the others (PADDLE_PG_TIMEOUT).
  std::chrono::milliseconds timeout() const;
  /// Ends everything under way in this group, on every member that can be reached, by a PeerError with this reason.
  void abort(std::string_view reason) const;

  operator RankInfo() const { return {rank(), size()}; }  // NOLINT(google-explicit-constructor): it is one

  /// For the library itself; UsageError on a process that is not a member.
  const State& state() const;

 private:
  std::shared_ptr<const State> state_;
};

}  // namespace trireme
