#include "trireme/nn/kernels/cuda/gate.h"
#include "trireme/nn/kernels/cuda/launch.cuh"

namespace trireme::nn::kernels::cuda {
namespace {

/// A block takes some columns of vectors (x) of one image (y); its threads take every rows_at_once-th pixel.
template <typename T, bool kProduct>
__global__ void __launch_bounds__(kThreads)
    sum_pixels(const T* __restrict__ x, const T* __restrict__ y, int64_t pixels, int64_t vectors, int columns,
               int rows_at_once, float factor, float* __restrict__ sums) {
  constexpr int kWidth = Pack<T>::kWidth;
  const int64_t vector = static_cast<int64_t>(blockIdx.x) * columns + threadIdx.x % columns;
  const int row = threadIdx.x / columns;
  const int64_t channels = vectors * kWidth;
  const int64_t base = static_cast<int64_t>(blockIdx.y) * pixels * channels + vector * kWidth;
  __shared__ float shared[kThreads * kWidth];
  float sum[kWidth] = {};
  if (row < rows_at_once && vector < vectors)
#pragma unroll 4
    for (int64_t pixel = row; pixel < pixels; pixel += rows_at_once) {
      float numbers[kWidth], others[kWidth];
      Pack<T>::load(x + base + pixel * channels, numbers);
      if constexpr (kProduct) Pack<T>::load(y + base + pixel * channels, others);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum[i] += kProduct ? numbers[i] * others[i] : numbers[i];
    }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) shared[threadIdx.x * kWidth + i] = sum[i];
  __syncthreads();
  for (int k = threadIdx.x; k < columns * kWidth; k += kThreads) {
    const int64_t channel = static_cast<int64_t>(blockIdx.x) * columns * kWidth + k;
    if (channel >= channels) continue;
    float all = 0;
    for (int other = 0; other < rows_at_once; ++other) all += shared[other * columns * kWidth + k];
    sums[static_cast<int64_t>(blockIdx.y) * channels + channel] = all * factor;
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    scale(const T* __restrict__ x, const float* __restrict__ gates, const float* __restrict__ constants,
          T* __restrict__ y, int64_t pixels, int64_t vectors, int64_t count) {
  constexpr int kWidth = Pack<T>::kWidth;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= count) return;
  const int64_t image = index / (pixels * vectors);
  const int64_t at = image * vectors * kWidth + index % vectors * kWidth;
  float numbers[kWidth], factor[kWidth], constant[kWidth] = {};
  Pack<T>::load(x + index * kWidth, numbers);
  load_floats(gates + at, factor);
  if (constants) load_floats(constants + at, constant);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) numbers[i] = numbers[i] * factor[i] + constant[i];
  Pack<T>::store(numbers, y + index * kWidth);
}

}  // namespace

void image_sums(const GateShape& shape, const void* x, const void* y, float factor, float* sums, Stream stream) {
  const int64_t vectors = shape.channels / vector_width(shape.type);
  Tiling tiling(shape.pixels, vectors, 1);
  tiling.grid.y = static_cast<unsigned>(shape.images);
  with_type(shape.type, [&](auto type) {
    using T = decltype(type);
    const auto kernel = y ? sum_pixels<T, true> : sum_pixels<T, false>;
    kernel<<<tiling.grid, kThreads, 0, stream>>>(static_cast<const T*>(x), static_cast<const T*>(y), shape.pixels,
                                                 vectors, tiling.columns, tiling.rows_at_once, factor, sums);
  });
  check_launch("squeeze and excitation");
}

void gate(const GateShape& shape, const void* x, const float* gates, const float* constant, void* y, Stream stream) {
  const int64_t vectors = shape.channels / vector_width(shape.type);
  const int64_t count = shape.images * shape.pixels * vectors;
  with_type(shape.type, [&](auto type) {
    using T = decltype(type);
    scale<T><<<static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads, 0, stream>>>(
        static_cast<const T*>(x), gates, constant, static_cast<T*>(y), shape.pixels, vectors, count);
  });
  check_launch("squeeze and excitation");
}

}  // namespace trireme::nn::kernels::cuda
