// How the bytes of a segment are divided. The words are defined in exchange.h.
//
//   header | control block of rank 0 | … of rank R-1 | rank 0: buffer 0, buffer 1 | … | rank R-1: buffer 0, buffer 1
//
// A buffer is an `in` area for one piece of what its rank contributes and an `out` area for one slice of a result.
// Everything that one rank writes lies on cache lines of its own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "trireme/comm/engine/operation.h"

namespace trireme::comm::shm {

inline constexpr size_t kLine = 128;  // two lines: processors fetch them in pairs
inline constexpr uint64_t kMagic = 0x656d657269727400;
inline constexpr uint32_t kLayoutVersion = 2;
inline constexpr int kMaxRanks = 256;
inline constexpr size_t kReasonSize = 1024;

constexpr size_t round_up(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// A part of an array, in elements.
struct Range {
  size_t begin = 0;
  size_t end = 0;
  size_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// The slice of `elements` that `rank` reduces. Slices follow each other in rank order and cover everything; they begin
/// at multiples of 64 elements, so that two ranks share no cache line, and the last ones may be empty.
constexpr Range slice_of(size_t elements, int ranks, int rank) {
  const size_t step = round_up((elements + static_cast<size_t>(ranks) - 1) / static_cast<size_t>(ranks), 64);
  const size_t begin = step * static_cast<size_t>(rank);
  return {begin < elements ? begin : elements, begin + step < elements ? begin + step : elements};
}

struct alignas(kLine) SegmentHeader {
  uint64_t magic = kMagic;
  uint32_t version = kLayoutVersion;
  int32_t ranks = 0;
  uint64_t piece_bytes = 0;
  uint64_t total_bytes = 0;
  // Written once, by the first rank that gives up. The text may be read when the state says `written`.
  enum AbortState : uint32_t { running = 0, claimed = 1, written = 2 };
  alignas(kLine) std::atomic<uint32_t> abort_state = running;
  int32_t abort_rank = -1;  // the blamed rank; -1: not known
  char abort_reason[kReasonSize] = {};
};

/// Written by its owner, read by all; only `sleepers` is written by the others.
struct alignas(kLine) ControlBlock {
  std::atomic<uint32_t> published = 0;  ///< number of the last round whose buffer is complete; a futex
  std::atomic<uint32_t> sleepers = 0;   ///< how many wait, or are about to, in the kernel for `published`
  alignas(kLine) Operation operations[2];
  alignas(kLine) std::atomic<uint64_t> begun = 0;  ///< sequence number of the last operation begun, for messages
  std::atomic<uint64_t> start_time = 0;
  std::atomic<int32_t> pid = 0;  ///< 0: not started yet
  std::atomic<uint32_t> left = 0;
};

static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free,
              "atomics with a hidden lock do not work between processes");
static_assert(sizeof(std::atomic<uint32_t>) == 4, "a futex is 32 bits");

/// What a segment is made for.
struct Shape {
  int ranks = 1;
  size_t piece_bytes = 0;  ///< a multiple of 64

  size_t out_bytes() const { return round_up(piece_bytes / static_cast<size_t>(ranks), kLine) + 64 * 8; }
  size_t buffer_bytes() const { return round_up(piece_bytes + out_bytes(), kLine); }
  size_t control_offset(int rank) const {
    return sizeof(SegmentHeader) + sizeof(ControlBlock) * static_cast<size_t>(rank);
  }
  size_t buffer_offset(int rank, uint32_t round) const {
    return round_up(control_offset(ranks), 4096) + buffer_bytes() * (static_cast<size_t>(rank) * 2 + round % 2);
  }
  size_t total_bytes() const { return round_up(buffer_offset(ranks, 0), 4096); }
};

}  // namespace trireme::comm::shm
