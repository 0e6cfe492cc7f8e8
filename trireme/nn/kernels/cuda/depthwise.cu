#include <type_traits>

#include "trireme/nn/kernels/cuda/depthwise.h"
#include "trireme/nn/kernels/cuda/launch.cuh"

namespace trireme::nn::kernels::cuda {
namespace {

constexpr int kTile = 4;  // pixels of a row that one thread makes, from inputs that they share
constexpr int kMaxColumns = 32;

struct Images {
  int height, width, out_height, out_width, vectors;
};

/// One thread's share: a vector of channels of a tile of a row. A block takes `columns` vectors (blockIdx.x) and as many
/// tiles at once as fit its threads.
struct Share {
  int column, vector;
  int first, stride;  // tiles
  bool active;

  __device__ Share(int columns, int tiles_at_once, int vectors)
      : column(static_cast<int>(threadIdx.x) % columns),
        vector(static_cast<int>(blockIdx.x) * columns + column),
        first(static_cast<int>(blockIdx.y) * tiles_at_once + static_cast<int>(threadIdx.x) / columns),
        stride(static_cast<int>(gridDim.y) * tiles_at_once),
        active(static_cast<int>(threadIdx.x) / columns < tiles_at_once && vector < vectors) {}
};

/// Where a tile lies.
struct Spot {
  int image, row, first;
  __device__ Spot(int tile, int tiles_in_row, int rows) {
    const int line = tile / tiles_in_row;
    first = (tile - line * tiles_in_row) * kTile;
    image = line / rows;
    row = line - image * rows;
  }
};

template <int kWidth>
__device__ inline void multiply_add(float (&sum)[kWidth], const float (&a)[kWidth], const float (&b)[kWidth]) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) sum[i] += a[i] * b[i];
}

/// The weights of the block's channels, [kernel * kernel, columns * kWidth], in shared memory; with `turned` in reverse
/// order of their places.
template <typename T, int kPlaces, int kWidth>
__device__ inline void fetch_weights(const void* weight, bool is_float, bool turned, int columns, int vectors,
                                     float* shared) {
  const int wide = columns * kWidth, begin = static_cast<int>(blockIdx.x) * wide, channels = vectors * kWidth;
  for (int k = threadIdx.x; k < kPlaces * wide; k += kThreads) {
    const int column = k / kPlaces, place = k - column * kPlaces, channel = begin + column;
    float number = 0;
    if (channel < channels)
      number = is_float ? static_cast<const float*>(weight)[channel * kPlaces + place]
                        : static_cast<float>(static_cast<const T*>(weight)[channel * kPlaces + place]);
    shared[(turned ? kPlaces - 1 - place : place) * wide + column] = number;
  }
  __syncthreads();
}

template <typename T, int kKernel, int kStride>
__global__ void __launch_bounds__(kThreads, 2)
    forward(const T* __restrict__ x, const void* __restrict__ weight, bool is_float, bool turned, T* __restrict__ y,
            Images in, int tiles, int columns, int tiles_at_once) {
  constexpr int kWidth = Pack<T>::kWidth, kPad = (kKernel - 1) / 2, kSpan = (kTile - 1) * kStride + kKernel;
  __shared__ __align__(16) float shared[kKernel * kKernel * kMaxColumns * kWidth];
  fetch_weights<T, kKernel * kKernel, kWidth>(weight, is_float, turned, columns, in.vectors, shared);
  const Share share(columns, tiles_at_once, in.vectors);
  if (!share.active) return;
  const int64_t channels = static_cast<int64_t>(in.vectors) * kWidth;
  const int tiles_in_row = (in.out_width + kTile - 1) / kTile;
  for (int tile = share.first; tile < tiles; tile += share.stride) {
    const Spot spot(tile, tiles_in_row, in.out_height);
    float sums[kTile][kWidth] = {};
#pragma unroll 1
    for (int kh = 0; kh < kKernel; ++kh) {
      const int ih = spot.row * kStride + kh - kPad;
      const bool inside = ih >= 0 && ih < in.height;
      const T* line =
          x + (static_cast<int64_t>(spot.image * in.height + ih) * in.width) * channels + share.vector * kWidth;
      uint4 raw[kSpan];
#pragma unroll
      for (int s = 0; s < kSpan; ++s) {
        const int iw = spot.first * kStride + s - kPad;
        raw[s] = load_raw_if(inside && iw >= 0 && iw < in.width, line + iw * channels);
      }
#pragma unroll
      for (int kw = 0; kw < kKernel; ++kw) {
        float weights[kWidth];
        load_floats(shared + ((kh * kKernel + kw) * columns + share.column) * kWidth, weights);
#pragma unroll
        for (int t = 0; t < kTile; ++t) {
          float numbers[kWidth];
          Pack<T>::unpack(raw[t * kStride + kw], numbers);
          multiply_add(sums[t], numbers, weights);
        }
      }
    }
    T* out = y + (static_cast<int64_t>(spot.image * in.out_height + spot.row) * in.out_width + spot.first) * channels +
             share.vector * kWidth;
#pragma unroll
    for (int t = 0; t < kTile; ++t)
      if (spot.first + t < in.out_width) Pack<T>::store(sums[t], out + t * channels);
  }
}

/// Each output pixel oh, ow gave to the input pixels oh * 2 + kh - pad: seen from the input, those with ih + pad - kh
/// even. (At stride 1 the gradient is a convolution itself, with the kernel turned round.)
template <typename T, int kKernel>
__global__ void __launch_bounds__(kThreads, 2)
    input_gradient(const T* __restrict__ dy, const void* __restrict__ weight, bool is_float, T* __restrict__ dx,
                   Images in, int tiles, int columns, int tiles_at_once) {
  constexpr int kWidth = Pack<T>::kWidth, kPad = (kKernel - 1) / 2, kStride = 2;
  // The outputs to which the inputs of a tile went, beside that of its first.
  constexpr int kFrom = -((kKernel - 1 - kPad) / kStride), kTo = (kTile - 1 + kPad) / kStride;
  __shared__ __align__(16) float shared[kKernel * kKernel * kMaxColumns * kWidth];
  fetch_weights<T, kKernel * kKernel, kWidth>(weight, is_float, false, columns, in.vectors, shared);
  const Share share(columns, tiles_at_once, in.vectors);
  if (!share.active) return;
  const int64_t channels = static_cast<int64_t>(in.vectors) * kWidth;
  const int tiles_in_row = (in.width + kTile - 1) / kTile;
  for (int tile = share.first; tile < tiles; tile += share.stride) {
    const Spot spot(tile, tiles_in_row, in.height);
    float sums[kTile][kWidth] = {};
#pragma unroll 1
    for (int kh = (spot.row + kPad) % kStride; kh < kKernel; kh += kStride) {
      const int oh = (spot.row + kPad - kh) / kStride;
      const bool inside = spot.row + kPad >= kh && oh < in.out_height;
      const T* line = dy + (static_cast<int64_t>(spot.image * in.out_height + oh) * in.out_width) * channels +
                      share.vector * kWidth;
      uint4 raw[kTo - kFrom + 1];
#pragma unroll
      for (int s = kFrom; s <= kTo; ++s) {
        const int ow = spot.first / kStride + s;
        raw[s - kFrom] = load_raw_if(inside && ow >= 0 && ow < in.out_width, line + ow * channels);
      }
#pragma unroll
      for (int kw = 0; kw < kKernel; ++kw) {
        float weights[kWidth];
        load_floats(shared + ((kh * kKernel + kw) * columns + share.column) * kWidth, weights);
#pragma unroll
        for (int t = 0; t < kTile; ++t) {
          if ((t + kPad - kw) % kStride != 0) continue;
          float numbers[kWidth];
          Pack<T>::unpack(raw[(t + kPad - kw) / kStride - kFrom], numbers);
          multiply_add(sums[t], numbers, weights);
        }
      }
    }
    T* out = dx + (static_cast<int64_t>(spot.image * in.height + spot.row) * in.width + spot.first) * channels +
             share.vector * kWidth;
#pragma unroll
    for (int t = 0; t < kTile; ++t)
      if (spot.first + t < in.width) Pack<T>::store(sums[t], out + t * channels);
  }
}

/// A block of the weight gradient takes one row of the kernel (blockIdx.z) besides.
template <typename T, int kKernel, int kStride>
__global__ void __launch_bounds__(kThreads, 2)
    weight_gradient(const T* __restrict__ dy, const T* __restrict__ x, float* __restrict__ parts, Images in, int tiles,
                    int columns, int tiles_at_once) {
  constexpr int kWidth = Pack<T>::kWidth, kPad = (kKernel - 1) / 2, kSpan = (kTile - 1) * kStride + kKernel;
  const Share share(columns, tiles_at_once, in.vectors);
  const int kh = static_cast<int>(blockIdx.z), tiles_in_row = (in.out_width + kTile - 1) / kTile;
  const int64_t channels = static_cast<int64_t>(in.vectors) * kWidth, at = static_cast<int64_t>(share.vector) * kWidth;
  float sums[kKernel][kWidth] = {};
  if (share.active)
    for (int tile = share.first; tile < tiles; tile += share.stride) {
      const Spot spot(tile, tiles_in_row, in.out_height);
      const int ih = spot.row * kStride + kh - kPad;
      const bool inside = ih >= 0 && ih < in.height;
      const T* gradients =
          dy + (static_cast<int64_t>(spot.image * in.out_height + spot.row) * in.out_width + spot.first) * channels +
          at;
      const T* line = x + (static_cast<int64_t>(spot.image * in.height + ih) * in.width) * channels + at;
      uint4 raw[kSpan], raw_gradients[kTile];
#pragma unroll
      for (int t = 0; t < kTile; ++t)
        raw_gradients[t] = load_raw_if(inside && spot.first + t < in.out_width, gradients + t * channels);
#pragma unroll
      for (int s = 0; s < kSpan; ++s) {
        const int iw = spot.first * kStride + s - kPad;
        raw[s] = load_raw_if(inside && iw >= 0 && iw < in.width, line + iw * channels);
      }
#pragma unroll
      for (int t = 0; t < kTile; ++t) {
        float g[kWidth];
        Pack<T>::unpack(raw_gradients[t], g);
#pragma unroll
        for (int kw = 0; kw < kKernel; ++kw) {
          float numbers[kWidth];
          Pack<T>::unpack(raw[t * kStride + kw], numbers);
          multiply_add(sums[kw], numbers, g);
        }
      }
    }
  // One column of the kernel after the other, so that the shared memory stays small.
  __shared__ float shared[kThreads * kWidth];
  const int wide = columns * kWidth;
#pragma unroll
  for (int kw = 0; kw < kKernel; ++kw) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kWidth; ++i) shared[threadIdx.x * kWidth + i] = sums[kw][i];
    __syncthreads();
    for (int k = threadIdx.x; k < wide; k += kThreads) {
      const int64_t channel = static_cast<int64_t>(blockIdx.x) * wide + k;
      if (channel >= channels) continue;
      float sum = 0;
      for (int row = 0; row < tiles_at_once; ++row) sum += shared[row * wide + k];
      parts[(static_cast<int64_t>(blockIdx.y) * kKernel * kKernel + kh * kKernel + kw) * channels + channel] = sum;
    }
  }
}

/// Adds the blocks' parts, [blocks, places, channels], and writes [channels, places].
template <typename W>
__global__ void __launch_bounds__(kThreads) finish_weights(const float* __restrict__ parts, int blocks, int places,
                                                           int64_t channels, W* __restrict__ d_weight) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, count = places * channels;
  if (index >= count) return;
  float sum = 0;
#pragma unroll 8
  for (int block = 0; block < blocks; ++block) sum += parts[block * count + index];
  d_weight[index % channels * places + index / channels] = static_cast<W>(sum);
}

Images images_of(const DepthwiseShape& shape) {
  return {static_cast<int>(shape.height), static_cast<int>(shape.width), static_cast<int>(shape.out_height()),
          static_cast<int>(shape.out_width()), static_cast<int>(shape.channels / vector_width(shape.type))};
}

/// Calls f(type, kernel) with the kernel's size as a type.
template <typename F>
void with_kernel(const DepthwiseShape& shape, F f) {
  with_type(shape.type, [&](auto type) {
    if (shape.kernel == 3) f(type, std::integral_constant<int, 3>{});
    if (shape.kernel == 5) f(type, std::integral_constant<int, 5>{});
  });
  check_launch("depthwise convolution");
}

int64_t tiles_of(const DepthwiseShape& shape, int64_t height, int64_t width) {
  return shape.images * height * ((width + kTile - 1) / kTile);
}

constexpr int kManyBlocks = 8 * 132;  // four times what an H200 runs at once: the last ones are short

Tiling tiling_of(const DepthwiseShape& shape, int64_t tiles, int blocks) {
  return {tiles, shape.channels / vector_width(shape.type), blocks, kMaxColumns};
}

Tiling weight_tiling(const DepthwiseShape& shape) {
  constexpr int kBlocks = 4 * 132, kTilesEach = 4;
  return {tiles_of(shape, shape.out_height(), shape.out_width()), shape.channels / vector_width(shape.type),
          kBlocks / shape.kernel, kMaxColumns, kTilesEach};
}

bool has_float_weight(const DepthwiseShape& shape) {
  return shape.weight_type == Type::float32;
}

}  // namespace

bool depthwise_fits(const DepthwiseShape& shape) {
  constexpr int64_t kMax = int64_t{1} << 30;
  return tiles_of(shape, shape.height, shape.width) < kMax && shape.images * shape.height < kMax;
}

void depthwise_forward(const DepthwiseShape& shape, const void* x, const void* weight, void* y, Stream stream) {
  const int64_t tiles = tiles_of(shape, shape.out_height(), shape.out_width());
  const Tiling tiling = tiling_of(shape, tiles, kManyBlocks);
  with_kernel(shape, [&](auto type, auto kernel) {
    using T = decltype(type);
    constexpr int kKernel = decltype(kernel)::value;
    const auto run = shape.stride == 1 ? forward<T, kKernel, 1> : forward<T, kKernel, 2>;
    run<<<tiling.grid, kThreads, 0, stream>>>(static_cast<const T*>(x), weight, has_float_weight(shape),
                                              /*turned=*/false, static_cast<T*>(y), images_of(shape),
                                              static_cast<int>(tiles), tiling.columns, tiling.rows_at_once);
  });
}

void depthwise_input_gradient(const DepthwiseShape& shape, const void* dy, const void* weight, void* dx,
                              Stream stream) {
  const int64_t tiles = tiles_of(shape, shape.height, shape.width);
  const Tiling tiling = tiling_of(shape, tiles, kManyBlocks);
  with_kernel(shape, [&](auto type, auto kernel) {
    using T = decltype(type);
    constexpr int kKernel = decltype(kernel)::value;
    const auto* from = static_cast<const T*>(dy);
    auto* to = static_cast<T*>(dx);
    const bool is_float = has_float_weight(shape);
    if (shape.stride == 1)
      forward<T, kKernel, 1><<<tiling.grid, kThreads, 0, stream>>>(from, weight, is_float, /*turned=*/true, to,
                                                                   images_of(shape), static_cast<int>(tiles),
                                                                   tiling.columns, tiling.rows_at_once);
    else
      input_gradient<T, kKernel><<<tiling.grid, kThreads, 0, stream>>>(
          from, weight, is_float, to, images_of(shape), static_cast<int>(tiles), tiling.columns, tiling.rows_at_once);
  });
}

int64_t depthwise_scratch(const DepthwiseShape& shape) {
  return weight_tiling(shape).grid.y * shape.kernel * shape.kernel * shape.channels;
}

void depthwise_weight_gradient(const DepthwiseShape& shape, const void* dy, const void* x, void* d_weight,
                               float* scratch, Stream stream) {
  Tiling tiling = weight_tiling(shape);
  const auto blocks = static_cast<int>(tiling.grid.y);
  tiling.grid.z = static_cast<unsigned>(shape.kernel);
  const auto tiles = static_cast<int>(tiles_of(shape, shape.out_height(), shape.out_width()));
  with_kernel(shape, [&](auto type, auto kernel) {
    using T = decltype(type);
    constexpr int kKernel = decltype(kernel)::value, kPlaces = kKernel * kKernel;
    const auto run = shape.stride == 1 ? weight_gradient<T, kKernel, 1> : weight_gradient<T, kKernel, 2>;
    run<<<tiling.grid, kThreads, 0, stream>>>(static_cast<const T*>(dy), static_cast<const T*>(x), scratch,
                                              images_of(shape), tiles, tiling.columns, tiling.rows_at_once);
    const auto grid = static_cast<unsigned>((kPlaces * shape.channels + kThreads - 1) / kThreads);
    if (has_float_weight(shape))
      finish_weights<<<grid, kThreads, 0, stream>>>(scratch, blocks, kPlaces, shape.channels,
                                                    static_cast<float*>(d_weight));
    else
      finish_weights<<<grid, kThreads, 0, stream>>>(scratch, blocks, kPlaces, shape.channels,
                                                    static_cast<T*>(d_weight));
  });
}

}  // namespace trireme::nn::kernels::cuda
