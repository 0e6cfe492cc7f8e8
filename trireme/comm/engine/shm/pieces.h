// How the collectives cut what does not fit in a buffer. The words are defined in exchange.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#include "trireme/comm/engine/shm/layout.h"

namespace trireme::comm::shm {

/// An empty tensor still takes one round, in which the ranks meet and compare their operations.
inline size_t pieces(size_t total, size_t piece) {
  return total == 0 ? 1 : (total + piece - 1) / piece;
}

inline Range piece_of(size_t total, size_t piece, size_t index) {
  return {std::min(total, piece * index), std::min(total, piece * (index + 1))};
}

/// Bytes of an `in` area for one receiver, where it holds something else for each.
inline size_t part_bytes(const Shape& shape) {
  return shape.piece_bytes / static_cast<size_t>(shape.ranks) / 64 * 64;
}

inline size_t longest(std::span<const size_t> sizes) {
  return *std::max_element(sizes.begin(), sizes.end());
}

/// What lies before part `rank`.
inline size_t offset_of(std::span<const size_t> sizes, size_t rank) {
  size_t offset = 0;
  for (size_t k = 0; k < rank; ++k) offset += sizes[k];
  return offset;
}

/// To private memory; stream.h is for shared memory.
inline void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace trireme::comm::shm
