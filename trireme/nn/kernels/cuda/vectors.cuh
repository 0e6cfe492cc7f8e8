// Sixteen bytes of channels at a time: eight numbers of two bytes, or four floats. Arithmetic is in float.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace trireme::nn::kernels::cuda {

/// Two numbers of two bytes as one word.
__device__ inline float2 to_floats(__half2 pair) {
  return __half22float2(pair);
}
__device__ inline float2 to_floats(__nv_bfloat162 pair) {
  return __bfloat1622float2(pair);
}
template <typename T>
struct Pair;
template <>
struct Pair<__half> {
  using Type = __half2;
  __device__ static Type of(float a, float b) { return __floats2half2_rn(a, b); }
};
template <>
struct Pair<__nv_bfloat16> {
  using Type = __nv_bfloat162;
  __device__ static Type of(float a, float b) { return __floats2bfloat162_rn(a, b); }
};

template <typename T>
struct Pack {
  static constexpr int kWidth = 8;
  using Two = typename Pair<T>::Type;

  __device__ static void unpack(const uint4& raw, float (&to)[kWidth]) {
    const Two* pairs = reinterpret_cast<const Two*>(&raw);
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) {
      const float2 two = to_floats(pairs[i]);
      to[2 * i] = two.x, to[2 * i + 1] = two.y;
    }
  }
  __device__ static uint4 packed(const float (&from)[kWidth]) {
    uint4 raw;
    Two* pairs = reinterpret_cast<Two*>(&raw);
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) pairs[i] = Pair<T>::of(from[2 * i], from[2 * i + 1]);
    return raw;
  }
  __device__ static void load(const T* from, float (&to)[kWidth]) { unpack(*reinterpret_cast<const uint4*>(from), to); }
  __device__ static void store(const float (&from)[kWidth], T* to) { *reinterpret_cast<uint4*>(to) = packed(from); }
};

template <>
struct Pack<float> {
  static constexpr int kWidth = 4;

  __device__ static void unpack(const uint4& raw, float (&to)[kWidth]) {
    to[0] = __uint_as_float(raw.x), to[1] = __uint_as_float(raw.y);
    to[2] = __uint_as_float(raw.z), to[3] = __uint_as_float(raw.w);
  }
  __device__ static void load(const float* from, float (&to)[kWidth]) {
    unpack(*reinterpret_cast<const uint4*>(from), to);
  }
  __device__ static void store(const float (&from)[kWidth], float* to) {
    *reinterpret_cast<float4*>(to) = make_float4(from[0], from[1], from[2], from[3]);
  }
};

template <typename T>
__device__ inline uint4 load_raw(const T* from) {
  return *reinterpret_cast<const uint4*>(from);
}

/// Zeros where there is nothing to load. The compiler makes a predicated load of it, so that several run at once.
template <typename T>
__device__ inline uint4 load_raw_if(bool there, const T* from) {
  uint4 raw = make_uint4(0, 0, 0, 0);
  if (there) raw = *reinterpret_cast<const uint4*>(from);
  return raw;
}

/// floats of one vector's channels, from memory that is a multiple of 16 bytes in.
template <int kWidth>
__device__ inline void load_floats(const float* from, float (&to)[kWidth]) {
#pragma unroll
  for (int i = 0; i < kWidth; i += 4) {
    const float4 four = *reinterpret_cast<const float4*>(from + i);
    to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
  }
}

}  // namespace trireme::nn::kernels::cuda
