// How a kernel over a channels-last image is laid out, and how it is called for a type.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "trireme/nn/kernels/cuda/types.h"
#include "trireme/nn/kernels/cuda/vectors.cuh"

namespace trireme::nn::kernels::cuda {

inline constexpr int kThreads = 256;

/// Calls f(T{}) for the type's number.
template <typename F>
void with_type(Type type, F&& f) {
  switch (type) {
    case Type::float32:
      return std::forward<F>(f)(float{});
    case Type::float16:
      return std::forward<F>(f)(__half{});
    case Type::bfloat16:
      return std::forward<F>(f)(__nv_bfloat16{});
  }
}

/// A block covers `columns` vectors of a row and as many rows at once as fit its threads. The grid's x goes over the
/// columns, its y over the rows.
struct Tiling {
  int columns;       ///< vectors of a row in one block
  int rows_at_once;  ///< kThreads / columns; a few threads may stay idle
  dim3 grid;

  /// Blocks that add what their threads have take at least `rows_each` rows a thread, so that little is left to add.
  Tiling(int64_t rows, int64_t vectors, int target_blocks, int64_t max_columns = 64, int rows_each = 1) {
    const int64_t groups = (vectors + max_columns - 1) / max_columns;
    columns = static_cast<int>((vectors + groups - 1) / groups);
    rows_at_once = kThreads / columns;
    const int64_t most = (rows + rows_at_once * rows_each - 1) / (rows_at_once * rows_each);
    const int64_t wanted = std::max<int64_t>(1, target_blocks / groups);
    grid = dim3(static_cast<unsigned>(groups), static_cast<unsigned>(std::min(wanted, most)));
  }
};

/// Where a thread of such a block stands.
struct Place {
  int64_t vector;  ///< of the row
  int row;         ///< of those that the block covers at once
  int64_t first;   ///< its first row
  int64_t stride;  ///< to its next
  bool active;

  __device__ Place(int columns, int rows_at_once, int64_t vectors)
      : vector(static_cast<int64_t>(blockIdx.x) * columns + threadIdx.x % columns),
        row(threadIdx.x / columns),
        first(static_cast<int64_t>(blockIdx.y) * rows_at_once + row),
        stride(static_cast<int64_t>(gridDim.y) * rows_at_once),
        active(row < rows_at_once && vector < vectors) {}
};

}  // namespace trireme::nn::kernels::cuda
