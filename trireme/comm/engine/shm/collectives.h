// The collectives on bytes, in terms of rounds. Group (group.h) is their face; this is their body: collectives.cc has
// those that compute, movement.cc those that only move.
#pragma once

#include <cstddef>
#include <span>

#include "trireme/comm/engine/dtype.h"
#include "trireme/comm/engine/shm/exchange.h"

namespace trireme::comm::shm {

/// Up to here an all_reduce of this many bytes takes the one-round way. A fixed rule of size and number of ranks.
size_t one_round_limit(const Shape& shape);

/// Sizes of the parts of a tensor, by rank: in elements where something is computed, else in bytes.
using Sizes = std::span<const size_t>;

/// Each runs between exchange.begin() and the end of its turn. Arguments are checked by Group; `sizes` has one for each
/// rank and is the same everywhere, and the parts of a tensor follow each other in rank order.
/// Where a root is named, kEveryone in its place gives the result to all ranks.
inline constexpr int kEveryone = -1;
void run_all_reduce(Exchange& exchange, DType dtype, ReduceOp op, std::byte* data, size_t elements);
void run_reduce(Exchange& exchange, DType dtype, ReduceOp op, std::byte* data, size_t elements, int root);
void run_reduce_scatter(Exchange& exchange, DType dtype, ReduceOp op, const std::byte* input, Sizes sizes,
                        std::byte* output);
void run_broadcast(Exchange& exchange, std::byte* data, size_t bytes, int root);
void run_gather(Exchange& exchange, const std::byte* input, Sizes sizes, std::byte* output, int root);
void run_scatter(Exchange& exchange, const std::byte* input, Sizes sizes, std::byte* output, int root);
/// The sizes are this rank's own, in elements of `width` bytes. UsageError on every rank when two of them disagree.
void run_all_to_all(Exchange& exchange, size_t width, const std::byte* input, Sizes sent, std::byte* output,
                    Sizes received);

}  // namespace trireme::comm::shm
