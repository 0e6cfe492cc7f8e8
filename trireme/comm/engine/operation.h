// What one rank says it is about to do. Each rank puts its operation beside its data, so that a disagreement is found
// by everyone in the first round, before any element is used.
//
//   Operation mine{.kind = Kind::all_reduce, .dtype = DType::f32, .elements = 1024, .sequence = 42};
//   describe(mine)                     "all_reduce #42 float[1024] sum"
//   if (auto text = find_mismatch(all)) throw UsageError("{}", *text);
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "trireme/comm/engine/shm/dtype.h"

namespace trireme::shm {

enum class Kind : uint8_t {
  barrier,
  all_reduce,
  broadcast,
  all_gather,
  all_gather_uneven,
  reduce_scatter,
  reduce,
  gather,
  scatter,
  reduce_scatter_uneven,
  all_to_all,
  message,  ///< from rank 0 to rank 1 of a channel
};

/// Lives in shared memory: no pointers, the same layout in every process.
struct Operation {
  Kind kind = Kind::barrier;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  int32_t root = 0;
  uint64_t elements = 0;  ///< of the argument that has the same size on every rank; 0 for all_to_all
  uint64_t parts = 0;     ///< digest of the sizes of its parts, where they may differ
  uint64_t sequence = 0;  ///< counts the operations of one group, from 1
  bool operator==(const Operation&) const = default;
};

/// "broadcast #7 int64[5] from rank 2"
std::string describe(const Operation& operation);

/// How a rank is called in messages: by its number in the group that the caller knows, which for the two ends of a
/// channel is not 0 and 1. An empty list is as counted.
int called(std::span<const int> names, size_t rank);

/// The first rank that differs from rank 0, with both sides; nothing when all agree. Pure, and the same on every rank.
std::optional<std::string> find_mismatch(std::span<const Operation> by_rank, std::span<const int> names = {});

/// The same number for the same list.
uint64_t digest(std::span<const size_t> sizes);

}  // namespace trireme::shm
