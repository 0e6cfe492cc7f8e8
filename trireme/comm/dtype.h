// torch's element types as the engines know them.
#pragma once

#include <torch/types.h>

#include "trireme/comm/engine/engine.h"

namespace trireme {

/// A tensor as an engine sees it: dense, on the CPU, of a type the engines know.
struct Elements {
  void* data = nullptr;
  size_t count = 0;
  DType dtype = DType::u8;
};

/// For reductions: complex numbers are pairs of reals. UsageError for what has no sum (float8, quantised, sparse) and
/// for operations a type does not have.
Elements for_reduction(const torch::Tensor& dense, ReduceOp op);
/// For moving: a type the engines do not know is so many bytes.
Elements for_moving(const torch::Tensor& dense);
/// Elements of for_moving() for one element of this type.
size_t moving_factor(torch::ScalarType type);

}  // namespace trireme
