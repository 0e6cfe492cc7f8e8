// The collectives on bytes, in terms of rounds. Group (group.h) is their face; this is their body.
#pragma once

#include <cstddef>
#include <span>

#include "trireme/shm/dtype.h"
#include "trireme/shm/exchange.h"

namespace trireme::shm {

/// Up to here an all_reduce of this many bytes takes the one-round way. A fixed rule of size and number of ranks.
size_t one_round_limit(const Shape& shape);

/// Each runs between exchange.begin() and the end of its turn. Arguments are checked by Group.
void run_all_reduce(Exchange& exchange, DType dtype, ReduceOp op, std::byte* data, size_t elements);
void run_broadcast(Exchange& exchange, std::byte* data, size_t bytes, int root);
/// `bytes` are the sizes of all ranks' inputs; the output holds them one after the other.
void run_all_gather(Exchange& exchange, const std::byte* input, std::span<const size_t> bytes, std::byte* output);
void run_reduce_scatter(Exchange& exchange, DType dtype, ReduceOp op, const std::byte* input, size_t elements,
                        std::byte* output);

}  // namespace trireme::shm
