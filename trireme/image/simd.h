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

// Four numbers at once, by the vector types that GCC and Clang share. A pixel is one of these; the fourth is of no use.
using Float4 = float __attribute__((vector_size(16)));
using Double4 = double __attribute__((vector_size(32)));
using Int4 = int32_t __attribute__((vector_size(16)));
using Short4 = int16_t __attribute__((vector_size(8)));
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

}  // namespace trireme::image
