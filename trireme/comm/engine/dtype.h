// What the elements of a message are and how they are joined: the types and operations that the kernels know.
//
//   size_t bytes = 1024 * size_of(DType::f32);
//   check_reducible(DType::i32, ReduceOp::avg);        // UsageError: an integer has no average
#pragma once

#include <cstddef>
#include <cstdint>

#include "trireme/comm/engine/reduce_op.h"

namespace trireme::comm {

enum class DType : uint8_t { f32, f64, f16, bf16, i8, u8, i16, i32, i64, boolean };

inline constexpr DType kDTypes[] = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8,
                                    DType::u8,  DType::i16, DType::i32, DType::i64,  DType::boolean};
inline constexpr ReduceOp kReduceOps[] = {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max, ReduceOp::avg};

/// Bytes of one element.
size_t size_of(DType dtype);
bool is_floating(DType dtype);
/// As torch writes them: "float", "bfloat16", "int64", "bool".
const char* to_string(DType dtype);
const char* to_string(ReduceOp op);
/// UsageError for the average of integers or bools. Everything else is defined: integers wrap around, bools count as 0
/// and 1 with sum and max as "or", prod and min as "and".
void check_reducible(DType dtype, ReduceOp op);

}  // namespace trireme::comm
