// TRIREME_WIDE before a function with plain loops makes the compiler build it a second time for AVX2 and choose at
// start. Only where that works without surprises: GCC, x86-64, glibc, and no sanitizer (its runtime is not up yet when
// the choice is made).
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__GLIBC__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TRIREME_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define TRIREME_WIDE
#endif

namespace trireme::image {

// Four numbers at once, by the vector types that GCC and Clang share. A pixel is one of these; the fourth is unused.
using Float4 = float __attribute__((vector_size(16)));
using Double4 = double __attribute__((vector_size(32)));
using Int4 = int32_t __attribute__((vector_size(16)));
using Short4 = int16_t __attribute__((vector_size(8)));
using Short8 = int16_t __attribute__((vector_size(16)));
using Long2 = int64_t __attribute__((vector_size(16)));
using Byte16 = uint8_t __attribute__((vector_size(16)));

/// Four bytes, of which three are a pixel. Spelled as a shuffle, because compilers make one instruction of that.
[[gnu::always_inline]] inline Int4 load_pixel(const uint8_t* pixel) {
  int32_t four = 0;
  std::memcpy(&four, pixel, sizeof(four));
  const auto bytes = reinterpret_cast<Byte16>(Int4{four, 0, 0, 0});
  const auto wide =
      __builtin_shufflevector(bytes, Byte16{}, 0, 16, 16, 16, 1, 16, 16, 16, 2, 16, 16, 16, 3, 16, 16, 16);
  return reinterpret_cast<Int4>(wide);
}

/// Eight bytes, of which six are two pixels: their reds, their greens, their blues, and nothing.
[[gnu::always_inline]] inline Short8 load_pixel_pair(const uint8_t* pixel) {
  int64_t eight = 0;
  std::memcpy(&eight, pixel, sizeof(eight));
  const auto bytes = reinterpret_cast<Byte16>(Long2{eight, 0});
  const auto wide = __builtin_shufflevector(bytes, Byte16{}, 0, 16, 3, 16, 1, 16, 4, 16, 2, 16, 5, 16, 16, 16, 16, 16);
  return reinterpret_cast<Short8>(wide);
}

/// a[0] * b[0] + a[1] * b[1], and so on for each of the four pairs: one instruction that compilers do not find.
[[gnu::always_inline]] inline Int4 dot_pairs(Short8 a, Short8 b) {
#if defined(__SSE2__)
  return reinterpret_cast<Int4>(__builtin_ia32_pmaddwd128(a, b));
#else
  return Int4{a[0] * b[0] + a[1] * b[1], a[2] * b[2] + a[3] * b[3], a[4] * b[4] + a[5] * b[5],
              a[6] * b[6] + a[7] * b[7]};
#endif
}

}  // namespace trireme::image
