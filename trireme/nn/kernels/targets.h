// Which kinds of vectors the kernels are compiled for: AVX-512, AVX2, SSE 4.2, and plain loops for every processor.
// Highway chooses among them when the program runs; TRIREME_SIMD=avx2, sse or portable forces the choice down
// (dispatch.h).
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
