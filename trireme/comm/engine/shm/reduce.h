// Joins the contributions of several ranks, element by element, in the order given.
//
//   const std::byte* sources[] = {rank0, rank1, rank2};
//   reduce(DType::f32, ReduceOp::sum, sources, 1000, out);       // out = (rank0 + rank1) + rank2
//
// The order is the order of the sources whatever the length, and each element is computed alone: results are the same
// bits for every way of cutting an array into pieces, on every instruction set. Half and bfloat16 are joined in float
// and rounded once. A NaN in any contribution gives NaN, for min and max too.
#pragma once

#include <cstddef>
#include <span>

#include "trireme/comm/engine/dtype.h"

namespace trireme::comm::shm {

/// `out` may be one of the sources; otherwise nothing may overlap. No alignment is needed. avg divides by the number of
/// sources, of which there is at least one; check_reducible() must hold.
void reduce(DType dtype, ReduceOp op, std::span<const std::byte* const> sources, size_t elements, std::byte* out);

/// The instruction set that reduce() found at run time: "avx512", "avx2" or "baseline".
const char* reduce_instruction_set();

}  // namespace trireme::comm::shm
