// What the program comm_ranks can be asked to do. Each runs on every rank of a world and throws when something is
// wrong.
#pragma once

#include <string>

#include "trireme/parallel/init.h"

namespace trireme::ranks {

/// Every operation with every type, reduction and layout, in both forms; groups; refusals.
void run_matrix(const World& world);
/// `count` operations drawn from one stream, on overlapping groups, up to eight at a time.
void run_random(const World& world, int count, uint64_t seed);

/// Rank `victim` is killed in the middle of an operation of this kind. The others must be told who it was.
void run_die(const World& world, const std::string& kind, int victim);
/// Rank `leaver` ends normally while the others wait for it.
void run_leave(const World& world, int leaver);
/// Rank `late` lives, but does not come.
void run_late(const World& world, int late);
/// Rank 1 calls something else than the others: what differs is a name in faults.cc.
void run_mismatch(const World& world, const std::string& what);
/// Rank 0 drops a group in the middle of an operation.
void run_drop(const World& world);
/// Rank 0 aborts a group in which the others wait.
void run_abort(const World& world);
/// Prints whether an asynchronous all_reduce is done when the call returns. Rank 1 joins it when the call on rank 0 has
/// returned, or half a second later where FLAGS_benchmark=1 makes that call wait for it.
void run_at_once(const World& world);

}  // namespace trireme::ranks
