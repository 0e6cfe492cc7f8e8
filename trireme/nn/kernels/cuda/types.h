// What the CUDA kernels share with the operators that call them. No torch, and no CUDA header: a stream is what
// cudaStream_t points to.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace trireme::nn::kernels::cuda {

using Stream = CUstream_st*;

/// The type of the images. Parameters and statistics are float throughout.
enum class Type : uint8_t { float32, float16, bfloat16 };

/// Channels that lie in one vector of 16 bytes. The number of channels must be a multiple of it.
constexpr int vector_width(Type type) {
  return type == Type::float32 ? 4 : 8;
}

/// Throws std::runtime_error with CUDA's words when the last launch failed.
void check_launch(const char* kernel);

}  // namespace trireme::nn::kernels::cuda
