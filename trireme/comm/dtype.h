// torch's element types as the engines know them.
#pragma once

#include <torch/types.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "trireme/comm/engine/engine.h"

namespace trireme::comm {

/// A tensor as an engine sees it: dense, on the CPU, of a type the engines know.
struct Elements {
  void* data = nullptr;
  Dims dims{};  ///< the tensor's shape; what becomes several elements has one more size
  DType dtype = DType::u8;
  size_t count() const { return dims.elements; }
};

/// The type as torch knows it; the one place where types are paired.
torch::ScalarType to_torch(DType dtype);
/// The operation as c10d knows it, and back. UsageError for those of c10d that no engine has.
c10d::ReduceOp to_c10d(ReduceOp op);
ReduceOp from_c10d(const c10d::ReduceOp& op);

/// For reductions: complex numbers are pairs of reals. UsageError for what has no sum (float8, quantised, sparse) and
/// for operations a type does not have.
Elements for_reduction(const torch::Tensor& dense, ReduceOp op);
/// For moving: a type the engines do not know is so many bytes.
Elements for_moving(const torch::Tensor& dense);
/// Elements of for_moving() for one element of this type.
size_t moving_factor(torch::ScalarType type);

}  // namespace trireme::comm
