#include "trireme/nn/kernels/product.h"

#include <algorithm>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/nn/kernels/product.cc"
#include "trireme/nn/kernels/targets.h"
// After targets.h, which chooses among them.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "trireme/nn/kernels/vectors.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::nn::kernels::HWY_NAMESPACE {
namespace {

// A tile of the result is kept in registers: kRows rows of two vectors, 24 of AVX-512's 32, 8 of the others' 16.
#if HWY_TARGET <= HWY_AVX3
constexpr int kRows = 12;
#else
constexpr int kRows = 4;
#endif

int64_t lanes() {
  return static_cast<int64_t>(hn::Lanes(kTag));
}

/// One operand's way through the sum: the number of row r and step s at r * row + s * step.
struct Left {
  const float* at;
  int64_t row, step;
};
struct Right {
  const float* at;
  int64_t step;
};

/// out[kTile][1 or 2 vectors] = or += the sum over all steps. `part` is the last of the vectors.
template <int kTile, int kVectors, typename Part>
HWY_INLINE void tile(Left a, Right b, int64_t steps, Part part, float* out, int64_t out_row, bool adds) {
  const int64_t second = lanes();
  Vec sums[kTile * kVectors];  // a flat one: compilers keep it in registers
  HWY_UNROLL(24)
  for (int i = 0; i < kTile * kVectors; ++i) sums[i] = hn::Zero(kTag);
  for (int64_t s = 0; s < steps; ++s) {
    const float* right = b.at + s * b.step;
    const Vec first = kVectors == 2 ? hn::LoadU(kTag, right) : part.load(right);
    const Vec last = kVectors == 2 ? part.load(right + second) : first;
    HWY_UNROLL(12)
    for (int r = 0; r < kTile; ++r) {
      const Vec left = hn::Set(kTag, a.at[r * a.row + s * a.step]);
      sums[r * kVectors] = hn::MulAdd(left, first, sums[r * kVectors]);
      if constexpr (kVectors == 2) sums[r * kVectors + 1] = hn::MulAdd(left, last, sums[r * kVectors + 1]);
    }
  }
  HWY_UNROLL(12)
  for (int r = 0; r < kTile; ++r) {
    float* to = out + r * out_row;
    if constexpr (kVectors == 2) {
      const Vec sum = sums[r * kVectors];
      hn::StoreU(adds ? hn::Add(hn::LoadU(kTag, to), sum) : sum, kTag, to);
    }
    float* last = to + (kVectors - 1) * second;
    const Vec sum = sums[r * kVectors + kVectors - 1];
    part.store(adds ? hn::Add(part.load(last), sum) : sum, last);
  }
}

/// All rows for one or two vectors of columns.
template <int kVectors, typename Part>
HWY_INLINE void strip(Left a, Right b, int64_t rows, int64_t steps, Part part, float* out, int64_t out_row, bool adds) {
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows)
    tile<kRows, kVectors>({a.at + r * a.row, a.row, a.step}, b, steps, part, out + r * out_row, out_row, adds);
  for (; r + 4 <= rows; r += 4)
    tile<4, kVectors>({a.at + r * a.row, a.row, a.step}, b, steps, part, out + r * out_row, out_row, adds);
  for (; r < rows; ++r)
    tile<1, kVectors>({a.at + r * a.row, a.row, a.step}, b, steps, part, out + r * out_row, out_row, adds);
}

/// b(column) gives the right operand from a column on.
template <typename RightAt>
HWY_INLINE void strips(Left a, RightAt b, int64_t rows, int64_t columns, int64_t steps, float* out, bool adds) {
  const int64_t one = lanes();
  int64_t j = 0;
  for (; j + 2 * one <= columns; j += 2 * one) strip<2>(a, b(j), rows, steps, Whole(), out + j, columns, adds);
  const int64_t left = columns - j;
  if (left == 0) return;
  const Rest rest(left <= one ? left : left - one);
  if (left > one) {
    strip<2>(a, b(j), rows, steps, rest, out + j, columns, adds);
  } else {
    strip<1>(a, b(j), rows, steps, rest, out + j, columns, adds);
  }
}

// Packed: strips of two vectors of columns, one after the other, the inner index running first.
void Pack(const float* matrix, Steps steps, int64_t inner, int64_t columns, float* packed) {
  const int64_t width = 2 * lanes();
  for (int64_t begin = 0; begin < columns; begin += width)
    for (int64_t i = 0; i < inner; ++i)
      for (int64_t j = begin; j < begin + width; ++j)
        *packed++ = j < columns ? matrix[i * steps.inner_step + j * steps.column_step] : 0;
}

void Multiply(const float* a, int64_t rows, int64_t inner, const float* packed, int64_t columns, float* out,
              bool adds) {
  const int64_t width = 2 * lanes();
  strips(
      {a, inner, 1},
      [=](int64_t column) HWY_ATTR {
        return Right{packed + column * inner, width};
      },
      rows, columns, inner, out, adds);
}

void AddTransposedProduct(const float* a, int64_t a_columns, const float* b, int64_t b_columns, int64_t rows,
                          float* out) {
  strips(
      {a, 1, a_columns},
      [=](int64_t column) HWY_ATTR {
        return Right{b + column, b_columns};
      },
      a_columns, b_columns, rows, out, true);
}

}  // namespace
}  // namespace trireme::nn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::nn::kernels {

HWY_EXPORT(Pack);
HWY_EXPORT(Multiply);
HWY_EXPORT(AddTransposedProduct);

int64_t packed_size(int64_t inner, int64_t columns) {
  constexpr int64_t kWidest = 32;  // two vectors of AVX-512
  return (columns + kWidest - 1) / kWidest * kWidest * inner;
}

void pack(const float* matrix, Steps steps, int64_t inner, int64_t columns, float* packed) {
  HWY_DYNAMIC_DISPATCH(Pack)(matrix, steps, inner, columns, packed);
}

void multiply(const float* a, int64_t rows, int64_t inner, const float* packed, int64_t columns, float* out,
              Into into) {
  HWY_DYNAMIC_DISPATCH(Multiply)(a, rows, inner, packed, columns, out, into == Into::add);
}

void add_transposed_product(const float* a, int64_t a_columns, const float* b, int64_t b_columns, int64_t rows,
                            float* out) {
  HWY_DYNAMIC_DISPATCH(AddTransposedProduct)(a, a_columns, b, b_columns, rows, out);
}

}  // namespace trireme::nn::kernels
#endif
