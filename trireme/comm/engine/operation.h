// What one rank says it is about to do. The ranks of a group compare their operations before any element is used.
//
//   Operation mine{.kind = Kind::all_reduce, .dtype = DType::f32, .dims = 1024, .sequence = 42};
//   describe(mine)                     "all_reduce #42 float[1024] sum"
//   if (auto text = find_mismatch(all)) throw Disagreement("{}", *text);
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/engine/dtype.h"
#include "trireme/core/error.h"

namespace trireme::comm {

/// Ranks do not agree on what they do. All ranks that find it get the same text, with both sides.
class Disagreement : public UsageError {
 public:
  using UsageError::UsageError;
};

/// The number of elements of a tensor and its shape. Comparing two of them costs the same whatever their length: equal
/// shapes have equal digests, and the first few sizes are kept for messages. A scalar counts as [1].
struct Dims {
  static constexpr size_t kShown = 4;

  uint64_t elements = 0;
  uint64_t digest = 0;
  uint64_t count = 1;  ///< of sizes
  uint64_t shown[kShown] = {};

  Dims() : Dims(size_t{0}) {}
  Dims(size_t size);  // NOLINT(google-explicit-constructor): a plain count is a shape with one size
  explicit Dims(std::span<const int64_t> sizes);
  bool operator==(const Dims&) const = default;
};

/// "[2, 3]"; "[2, 3, 4, 5, ...]" with more than four sizes.
std::string to_string(const Dims& dims);

enum class Kind : uint8_t {
  barrier,
  all_reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  reduce,
  gather,
  scatter,
  all_to_all,
  message,  ///< from one rank to another
};

const char* to_string(Kind kind);

/// Lives in shared memory: no pointers, the same layout in every process.
struct Operation {
  Kind kind = Kind::barrier;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  int32_t root = 0;       ///< of a message: the sender
  int32_t to = 0;         ///< of a message: the receiver
  Dims dims{};            ///< of the argument that is alike on every rank, or of all parts together; 0 for all_to_all
  uint64_t parts = 0;     ///< digest of the sizes of its parts, where they differ
  uint64_t sequence = 0;  ///< counts the collectives of one group, or the messages of one channel, from 1; 0: not known
  bool operator==(const Operation&) const = default;
};

/// How ranks are called in messages: rank k of these is `names[k]` to the user. An empty list: as counted.
using RankNames = std::vector<int>;
int called(std::span<const int> names, int rank);

/// "broadcast #7 int64[5] from rank 2"
std::string describe(const Operation& operation, std::span<const int> names = {});

/// The first rank that differs from rank 0, with both sides; nothing when all agree. Pure, and the same on every rank.
/// With `members`, entry k is from rank members[k] of the group; roots and names are the group's.
std::optional<std::string> find_mismatch(std::span<const Operation> by_rank, std::span<const int> names = {},
                                         std::span<const int> members = {});

/// The same for what the ranks of an all_to_all exchange. `table` holds, for each rank, how much it sends to each rank
/// and then how much it expects from each.
std::optional<std::string> find_mismatch(const Operation& call, std::span<const size_t> table, size_t ranks,
                                         std::span<const int> names = {});

size_t total(std::span<const size_t> counts);

/// The same number for the same list.
uint64_t digest(std::span<const uint64_t> sizes);

}  // namespace trireme::comm
