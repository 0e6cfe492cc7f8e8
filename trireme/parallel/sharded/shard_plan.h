// Which parameters of a model travel together, and which part of them each rank keeps. Pure arithmetic.
//
// Neighbouring parameters form a *unit*: one flat array in which they lie one after the other, padded to equal parts for
// all ranks. A rank's *shard* is its part of the array. A parameter's *piece* is what of it lies in the shard: all of it,
// some of it, or nothing.
//
//   | weight . . . . . . . . . . . . . | bias . | weight . . . . . . . . . | pad |      one unit
//   |      rank 0       |      rank 1       |      rank 2       |      rank 3     |      its shards
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::parallel {

struct PlannedTensor {
  int64_t elements = 0;
  int64_t element_size = 4;
  int kind = 0;  ///< only tensors of one kind share a unit: type, device, whether it is trained
};

/// From begin to end, in elements.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t length() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

struct UnitPlan {
  std::vector<size_t> members;   ///< indices into the list of tensors
  std::vector<int64_t> offsets;  ///< where each begins in the flat array
  std::vector<int64_t> lengths;  ///< of each
  int64_t shard = 0;             ///< elements that each rank keeps; the flat array has as many times the ranks

  /// What of a member lies in the shard of a rank, counted from the member's beginning.
  Range piece(size_t member, int rank) const;
};

/// Units of at most `bytes`, except where one tensor alone is larger. Every tensor begins at a multiple of 64 bytes.
std::vector<UnitPlan> plan_units(const std::vector<PlannedTensor>& tensors, int64_t bytes, int ranks);

}  // namespace trireme::parallel
