// Products of matrices that are small enough for a core's caches: the 1x1 convolutions of a few images. One thread, SIMD
// chosen at run time. On processors whose vectors libtorch's own BLAS does not use it is up to twice as fast.
//
//   std::vector<float> packed(packed_size(inner, columns));
//   pack(weights, {.inner_step = 1, .column_step = inner}, inner, columns, packed.data());   // of [columns][inner]
//   multiply(a, rows, inner, packed.data(), columns, out, Into::replace);
#pragma once

#include <cstdint>

namespace trireme::nn::kernels {

/// Where the numbers of a right-hand matrix lie: inner index i, column j at i * inner_step + j * column_step.
struct Steps {
  int64_t inner_step = 1;
  int64_t column_step = 1;
};

enum class Into : uint8_t { replace, add };

/// How many numbers the packed form of a right-hand matrix has.
int64_t packed_size(int64_t inner, int64_t columns);

/// Puts a right-hand matrix into the order in which multiply() reads it.
void pack(const float* matrix, Steps steps, int64_t inner, int64_t columns, float* packed);

/// out[rows][columns] = a[rows][inner] * packed, or is added to.
void multiply(const float* a, int64_t rows, int64_t inner, const float* packed, int64_t columns, float* out, Into into);

/// out[a_columns][b_columns] += a^T * b, where a and b have `rows` rows: the gradient of weights.
void add_transposed_product(const float* a, int64_t a_columns, const float* b, int64_t b_columns, int64_t rows,
                            float* out);

}  // namespace trireme::nn::kernels
