// Which vectors the kernels use.
#pragma once

namespace trireme::nn::kernels {

/// Heeds TRIREME_SIMD (avx2, sse, portable): call it before the first kernel. UsageError for another value.
void choose_vectors();

/// The vectors in use, e.g. "AVX3" for AVX-512, or "EMU128" for plain loops.
const char* vectors_in_use();

}  // namespace trireme::nn::kernels
