#include "trireme/nn/kernels/cuda/launch.cuh"
#include "trireme/nn/kernels/cuda/norm_act.h"

namespace trireme::nn::kernels::cuda {
namespace {

constexpr int kBlocks = 4 * 132;  // four on each of an H200's multiprocessors
constexpr int kSumLanes = 32;     // threads that add the blocks' sums of one channel

template <int kWidth>
__device__ inline void activate(float (&z)[kWidth], Act act) {
  switch (act) {
    case Act::none:
      return;
    case Act::relu:
#pragma unroll
      for (float& v : z) v = v < 0 ? 0 : v;  // NaN stays
      return;
    case Act::relu6:
#pragma unroll
      for (float& v : z) v = v < 0 ? 0 : (v > 6 ? 6 : v);
      return;
    case Act::hardswish:
#pragma unroll
      for (float& v : z) v = v <= -3 ? 0 : (v >= 3 ? v : v * (v + 3) * (1.0f / 6));
      return;
    case Act::silu:
#pragma unroll
      for (float& v : z) v = v / (1 + __expf(-v));
      return;
  }
}

/// g times the derivative at z.
template <int kWidth>
__device__ inline void through_activation(float (&g)[kWidth], const float (&z)[kWidth], Act act) {
  switch (act) {
    case Act::none:
      return;
    case Act::relu:
#pragma unroll
      for (int i = 0; i < kWidth; ++i) g[i] = z[i] <= 0 ? 0 : g[i];
      return;
    case Act::relu6:
#pragma unroll
      for (int i = 0; i < kWidth; ++i) g[i] = z[i] <= 0 || z[i] >= 6 ? 0 : g[i];
      return;
    case Act::hardswish:
#pragma unroll
      for (int i = 0; i < kWidth; ++i) g[i] = z[i] <= -3 ? 0 : (z[i] >= 3 ? g[i] : g[i] * (z[i] * (1.0f / 3) + 0.5f));
      return;
    case Act::silu:
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float sigmoid = 1 / (1 + __expf(-z[i]));
        g[i] *= sigmoid * (1 + z[i] * (1 - sigmoid));
      }
      return;
  }
}

/// Adds what the block's threads have for the same channels, and writes it: [2, channels] of this block.
template <int kWidth>
__device__ inline void write_sums(const float (&first)[kWidth], const float (&second)[kWidth], const Place& place,
                                  int columns, int rows_at_once, int64_t vectors, float* scratch) {
  __shared__ float shared[kThreads * 2 * kWidth];
  if (threadIdx.x < columns * rows_at_once) {
    float* mine = shared + static_cast<size_t>(threadIdx.x) * 2 * kWidth;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) mine[i] = first[i], mine[kWidth + i] = second[i];
  }
  __syncthreads();
  const int64_t channels = vectors * kWidth;
  float* out = scratch + static_cast<int64_t>(blockIdx.y) * 2 * channels;
  for (int k = threadIdx.x; k < columns * 2 * kWidth; k += kThreads) {
    const int column = k / (2 * kWidth), i = k % (2 * kWidth);
    const int64_t vector = static_cast<int64_t>(blockIdx.x) * columns + column;
    if (vector >= vectors) continue;
    float sum = 0;
    for (int row = 0; row < rows_at_once; ++row) sum += shared[(row * columns + column) * 2 * kWidth + i];
    out[(i < kWidth ? 0 : channels) + vector * kWidth + i % kWidth] = sum;
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    add_moments(const T* __restrict__ x, int64_t rows, int64_t vectors, int columns, int rows_at_once, float* scratch) {
  constexpr int kWidth = Pack<T>::kWidth, kAhead = 4;
  const Place place(columns, rows_at_once, vectors);
  float sum[kWidth] = {}, squares[kWidth] = {};
  if (place.active) {
    const T* from = x + place.vector * kWidth;
    const int64_t step = vectors * kWidth;
    float pivot[kWidth];
    Pack<T>::load(from, pivot);
    const auto add = [&](const uint4& raw) {
      float numbers[kWidth];
      Pack<T>::unpack(raw, numbers);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float centred = numbers[i] - pivot[i];
        sum[i] += centred;
        squares[i] += centred * centred;
      }
    };
    int64_t row = place.first;
    for (; row + (kAhead - 1) * place.stride < rows; row += kAhead * place.stride) {
      uint4 raw[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) raw[j] = load_raw(from + (row + j * place.stride) * step);
#pragma unroll
      for (int j = 0; j < kAhead; ++j) add(raw[j]);
    }
    for (; row < rows; row += place.stride) add(load_raw(from + row * step));
  }
  write_sums(sum, squares, place, columns, rows_at_once, vectors, scratch);
}

/// The sums of one channel over all blocks; right in the threads of lane 0.
__device__ inline void add_blocks(const float* scratch, int blocks, int64_t channels, int64_t channel, double& first,
                                  double& second) {
  __shared__ double shared[2][kSumLanes][kThreads / kSumLanes];
  const int lane = threadIdx.y;
  first = 0, second = 0;
  if (channel < channels)
#pragma unroll 8
    for (int block = lane; block < blocks; block += kSumLanes) {
      first += scratch[(static_cast<int64_t>(block) * 2) * channels + channel];
      second += scratch[(static_cast<int64_t>(block) * 2 + 1) * channels + channel];
    }
  shared[0][lane][threadIdx.x] = first;
  shared[1][lane][threadIdx.x] = second;
  __syncthreads();
  if (lane != 0) return;
  for (int other = 1; other < kSumLanes; ++other) {
    first += shared[0][other][threadIdx.x];
    second += shared[1][other][threadIdx.x];
  }
}

template <typename T>
__global__ void finish_moments(const T* x, const float* scratch, int blocks, int64_t rows, int64_t channels,
                               NormForward call) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  double sum, squares;
  add_blocks(scratch, blocks, channels, channel, sum, squares);
  if (blockIdx.x == 0 && threadIdx.x == 0 && threadIdx.y == 0 && call.batches) ++*call.batches;
  if (threadIdx.y != 0 || channel >= channels) return;
  const double count = static_cast<double>(rows);
  const double offset = sum / count;
  const double mean = static_cast<double>(static_cast<float>(x[channel])) + offset;
  double variance = squares / count - offset * offset;
  variance = variance < 0 ? 0 : variance;  // NaN stays
  const double inverse = rsqrt(variance + call.epsilon);
  const double scale = inverse * call.weight[channel];
  call.statistics[channel] = static_cast<float>(mean);
  call.statistics[channels + channel] = static_cast<float>(inverse);
  call.statistics[2 * channels + channel] = static_cast<float>(scale);
  call.statistics[3 * channels + channel] = static_cast<float>(call.bias[channel] - mean * scale);
  if (!call.running_mean) return;
  const double kept = 1 - call.momentum, unbiased = variance * (count / (count > 1 ? count - 1 : 1));
  call.running_mean[channel] = static_cast<float>(kept * call.running_mean[channel] + call.momentum * mean);
  call.running_var[channel] = static_cast<float>(kept * call.running_var[channel] + call.momentum * unbiased);
}

template <typename T, bool kResidual>
__global__ void __launch_bounds__(kThreads)
    normalise(const T* __restrict__ x, const T* __restrict__ residual, T* y, const float* __restrict__ statistics,
              int64_t rows, int64_t vectors, int columns, int rows_at_once, Act act) {
  constexpr int kWidth = Pack<T>::kWidth, kAhead = 4;
  const Place place(columns, rows_at_once, vectors);
  if (!place.active || place.first >= rows) return;
  const int64_t step = vectors * kWidth, at = place.vector * kWidth;
  float scale[kWidth], shift[kWidth];
  load_floats(statistics + 2 * step + at, scale);
  load_floats(statistics + 3 * step + at, shift);
  const auto finish = [&](const uint4& raw, const uint4& raw_residual, int64_t place_in) {
    float z[kWidth], r[kWidth];
    Pack<T>::unpack(raw, z);
    if constexpr (kResidual) Pack<T>::unpack(raw_residual, r);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      z[i] = scale[i] * z[i] + shift[i];
      if constexpr (kResidual) z[i] += r[i];
    }
    activate(z, act);
    Pack<T>::store(z, y + place_in);
  };
  int64_t k = (rows - 1 - place.first) / place.stride;
  for (; k >= kAhead - 1; k -= kAhead) {
    uint4 raw[kAhead], beside[kAhead] = {};
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int64_t where = (place.first + (k - j) * place.stride) * step + at;
      raw[j] = load_raw(x + where);
      if constexpr (kResidual) beside[j] = load_raw(residual + where);
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) finish(raw[j], beside[j], (place.first + (k - j) * place.stride) * step + at);
  }
  for (; k >= 0; --k) {
    const int64_t where = (place.first + k * place.stride) * step + at;
    finish(load_raw(x + where), kResidual ? load_raw(residual + where) : uint4{}, where);
  }
}

/// The gradient in front of the activation, in two steps: memory first, for several rows, then arithmetic.
template <typename T, Behind kBehind>
struct Gradient {
  static constexpr int kWidth = Pack<T>::kWidth;
  struct Raw {
    uint4 x, dy, more, beside;
  };
  const T* x;
  const T* dy;
  const T* more_dy;
  const T* beside;
  Act act;
  float scale[kWidth], shift[kWidth];

  __device__ Raw fetch(int64_t where) const {
    Raw raw{load_raw(x + where), load_raw(dy + where), {}, {}};
    if (more_dy) raw.more = load_raw(more_dy + where);
    if constexpr (kBehind != Behind::nothing) raw.beside = load_raw(beside + where);
    return raw;
  }

  __device__ void make(const Raw& raw, float (&numbers)[kWidth], float (&g)[kWidth]) const {
    Pack<T>::unpack(raw.x, numbers);
    Pack<T>::unpack(raw.dy, g);
    if (more_dy) {
      float more[kWidth];
      Pack<T>::unpack(raw.more, more);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) g[i] += more[i];
    }
    if (act == Act::none) return;
    float z[kWidth];
    if constexpr (kBehind != Behind::nothing) Pack<T>::unpack(raw.beside, z);
    if constexpr (kBehind != Behind::output) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        z[i] = scale[i] * numbers[i] + shift[i] + (kBehind == Behind::residual ? z[i] : 0);
    }
    through_activation(g, z, act);
  }
};

template <typename T, Behind kBehind>
__global__ void __launch_bounds__(kThreads, 2)
    add_gradients(NormBackward call, int64_t rows, int64_t vectors, int columns, int rows_at_once, Act act) {
  constexpr int kWidth = Pack<T>::kWidth;
  const Place place(columns, rows_at_once, vectors);
  float sum[kWidth] = {}, centred[kWidth] = {};
  if (place.active) {
    const int64_t step = vectors * kWidth, at = place.vector * kWidth;
    using G = Gradient<T, kBehind>;
    G gradient{static_cast<const T*>(call.x), static_cast<const T*>(call.dy), static_cast<const T*>(call.more_dy),
               static_cast<const T*>(call.beside), act};
    float mean[kWidth];
    load_floats(call.statistics + at, mean);
    load_floats(call.statistics + 2 * step + at, gradient.scale);
    load_floats(call.statistics + 3 * step + at, gradient.shift);
    const auto add = [&](const typename G::Raw& raw, int64_t where) {
      float x[kWidth], g[kWidth];
      gradient.make(raw, x, g);
      if constexpr (kBehind != Behind::nothing) Pack<T>::store(g, static_cast<T*>(call.d_residual) + where);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        sum[i] += g[i];
        centred[i] += g[i] * (x[i] - mean[i]);
      }
    };
    int64_t row = place.first;
    for (; row + place.stride < rows; row += 2 * place.stride) {
      const int64_t here = row * step + at, there = (row + place.stride) * step + at;
      const typename G::Raw first = gradient.fetch(here), second = gradient.fetch(there);
      add(first, here);
      add(second, there);
    }
    if (row < rows) add(gradient.fetch(row * step + at), row * step + at);
  }
  write_sums(sum, centred, place, columns, rows_at_once, vectors, call.scratch);
}

/// Leaves in `plane`, [2, channels], what dx adds to scale * g: a factor of x and a constant.
__global__ void finish_gradients(NormBackward call, int blocks, int64_t rows, int64_t channels, float* plane) {
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  double sum, centred;
  add_blocks(call.scratch, blocks, channels, channel, sum, centred);
  if (threadIdx.y != 0 || channel >= channels) return;
  const double mean = call.statistics[channel], inverse = call.statistics[channels + channel];
  const double scale = call.statistics[2 * channels + channel], count = static_cast<double>(rows);
  const double factor = -scale * inverse * inverse * centred / count;
  call.d_bias[channel] = static_cast<float>(sum);
  call.d_weight[channel] = static_cast<float>(centred * inverse);
  plane[channel] = static_cast<float>(factor);
  plane[channels + channel] = static_cast<float>(-scale * sum / count - factor * mean);
}

template <typename T>
__global__ void __launch_bounds__(kThreads, 2)
    input_gradients(NormBackward call, const float* __restrict__ plane, int64_t rows, int64_t vectors, int columns,
                    int rows_at_once, Act act) {
  constexpr int kWidth = Pack<T>::kWidth;
  const Place place(columns, rows_at_once, vectors);
  if (!place.active || place.first >= rows) return;
  const int64_t step = vectors * kWidth, at = place.vector * kWidth;
  const bool is_done = call.behind != Behind::nothing;  // the gradient in front of the activation is there already
  using G = Gradient<T, Behind::nothing>;
  G gradient{static_cast<const T*>(call.x), static_cast<const T*>(is_done ? call.d_residual : call.dy),
             static_cast<const T*>(is_done ? nullptr : call.more_dy), nullptr, is_done ? Act::none : act};
  float factor[kWidth], constant[kWidth];
  load_floats(call.statistics + 2 * step + at, gradient.scale);
  load_floats(call.statistics + 3 * step + at, gradient.shift);
  load_floats(plane + at, factor);
  load_floats(plane + step + at, constant);
  const auto write = [&](const typename G::Raw& raw, int64_t where) {
    float x[kWidth], g[kWidth];
    gradient.make(raw, x, g);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) g[i] = gradient.scale[i] * g[i] + (factor[i] * x[i] + constant[i]);
    Pack<T>::store(g, static_cast<T*>(call.dx) + where);
  };
  int64_t k = (rows - 1 - place.first) / place.stride;
  for (; k >= 1; k -= 2) {
    const int64_t here = (place.first + k * place.stride) * step + at, there = here - place.stride * step;
    const typename G::Raw first = gradient.fetch(here), second = gradient.fetch(there);
    write(first, here);
    write(second, there);
  }
  if (k == 0) write(gradient.fetch(place.first * step + at), place.first * step + at);
}

int64_t vectors_of(const NormShape& shape) {
  return shape.channels / vector_width(shape.type);
}

/// Of the kernels that leave sums.
Tiling sum_tiling(const NormShape& shape) {
  constexpr int kColumns = 64, kRowsEach = 8;
  return {shape.rows, vectors_of(shape), kBlocks, kColumns, kRowsEach};
}

dim3 channel_grid(int64_t channels) {
  constexpr int64_t kChannels = kThreads / kSumLanes;
  return dim3(static_cast<unsigned>((channels + kChannels - 1) / kChannels));
}

constexpr dim3 kChannelBlock(kThreads / kSumLanes, kSumLanes);

}  // namespace

void check_launch(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) throw std::runtime_error(std::string(kernel) + ": " + cudaGetErrorString(error));
}

int64_t norm_scratch(const NormShape& shape) {
  const Tiling tiling = sum_tiling(shape);
  return (static_cast<int64_t>(tiling.grid.y) + 1) * 2 * shape.channels;  // the last two rows are the plane
}

void norm_act_forward(const NormShape& shape, const NormForward& call, Stream stream) {
  const int64_t vectors = vectors_of(shape);
  const Tiling tiling = sum_tiling(shape);
  with_type(shape.type, [&](auto type) {
    using T = decltype(type);
    const auto* x = static_cast<const T*>(call.x);
    const auto* residual = static_cast<const T*>(call.residual);
    add_moments<T><<<tiling.grid, kThreads, 0, stream>>>(x, shape.rows, vectors, tiling.columns, tiling.rows_at_once,
                                                         call.scratch);
    finish_moments<T><<<channel_grid(shape.channels), kChannelBlock, 0, stream>>>(
        x, call.scratch, static_cast<int>(tiling.grid.y), shape.rows, shape.channels, call);
    const auto kernel = residual ? normalise<T, true> : normalise<T, false>;
    const Tiling wide(shape.rows, vectors, kBlocks);
    kernel<<<wide.grid, kThreads, 0, stream>>>(x, residual, static_cast<T*>(call.y), call.statistics, shape.rows,
                                               vectors, wide.columns, wide.rows_at_once, shape.act);
  });
  check_launch("batch normalisation");
}

void norm_act_backward(const NormShape& shape, const NormBackward& call, Stream stream) {
  const int64_t vectors = vectors_of(shape);
  const Tiling tiling = sum_tiling(shape);
  const Tiling wide(shape.rows, vectors, 2 * kBlocks);
  float* plane = call.scratch + static_cast<int64_t>(tiling.grid.y) * 2 * shape.channels;
  with_type(shape.type, [&](auto type) {
    using T = decltype(type);
    auto sums = add_gradients<T, Behind::nothing>;
    if (call.behind == Behind::output) sums = add_gradients<T, Behind::output>;
    if (call.behind == Behind::residual) sums = add_gradients<T, Behind::residual>;
    sums<<<tiling.grid, kThreads, 0, stream>>>(call, shape.rows, vectors, tiling.columns, tiling.rows_at_once,
                                               shape.act);
    finish_gradients<<<channel_grid(shape.channels), kChannelBlock, 0, stream>>>(call, static_cast<int>(tiling.grid.y),
                                                                                 shape.rows, shape.channels, plane);
    input_gradients<T><<<wide.grid, kThreads, 0, stream>>>(call, plane, shape.rows, vectors, wide.columns,
                                                           wide.rows_at_once, shape.act);
  });
  check_launch("batch normalisation, backward");
}

}  // namespace trireme::nn::kernels::cuda
