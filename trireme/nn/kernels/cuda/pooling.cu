#include "trireme/nn/kernels/cuda/launch.cuh"
#include "trireme/nn/kernels/cuda/pooling.h"

namespace trireme::nn::kernels::cuda {
namespace {

struct Images {
  int height, width, out_height, out_width, vectors;
  int kernel, stride, padding;
};

/// A block takes some pixels of one row (blockIdx.y + gridDim.y * blockIdx.z of all images).
struct Pixel {
  int vector, column, row, image;
  bool active;
  int64_t index;  // of the vector in the tensor
  __device__ Pixel(int vectors, int width, int height, int images) {
    const int place = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
    const int line = static_cast<int>(blockIdx.y) + static_cast<int>(gridDim.y) * static_cast<int>(blockIdx.z);
    column = place / vectors;
    vector = place - column * vectors;
    image = line / height;
    row = line - image * height;
    active = column < width && image < images;
    index = (static_cast<int64_t>(line) * width + column) * vectors + vector;
  }
};

/// As many bytes as a vector has numbers.
template <int kWidth>
struct Bytes {
  uint8_t all[kWidth];
};

template <typename T>
__global__ void __launch_bounds__(kThreads)
    forward(const T* __restrict__ x, T* __restrict__ y, uint8_t* __restrict__ places, Images in, int images) {
  constexpr int kWidth = Pack<T>::kWidth;
  const Pixel out(in.vectors, in.out_width, in.out_height, images);
  if (!out.active) return;
  const int channels = in.vectors * kWidth;
  const T* from = x + static_cast<int64_t>(out.image) * in.height * in.width * channels + out.vector * kWidth;
  float best[kWidth];
  alignas(8) Bytes<kWidth> where;
  bool is_first = true;
  for (int kh = 0; kh < in.kernel; ++kh) {
    const int ih = out.row * in.stride + kh - in.padding;
    if (ih < 0 || ih >= in.height) continue;
    for (int kw = 0; kw < in.kernel; ++kw) {
      const int iw = out.column * in.stride + kw - in.padding;
      if (iw < 0 || iw >= in.width) continue;
      float numbers[kWidth];
      Pack<T>::load(from + (static_cast<int64_t>(ih) * in.width + iw) * channels, numbers);
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        if (is_first || numbers[i] > best[i] || numbers[i] != numbers[i]) {
          best[i] = numbers[i];
          where.all[i] = static_cast<uint8_t>(kh * in.kernel + kw);
        }
      is_first = false;
    }
  }
  Pack<T>::store(best, y + out.index * kWidth);
  *reinterpret_cast<Bytes<kWidth>*>(places + out.index * kWidth) = where;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    backward(const T* __restrict__ dy, const T* __restrict__ more_dy, const uint8_t* __restrict__ places,
             T* __restrict__ dx, Images in, int images) {
  constexpr int kWidth = Pack<T>::kWidth;
  const Pixel at(in.vectors, in.width, in.height, images);
  if (!at.active) return;
  const auto first_of = [&](int place) {  // the first window that holds it
    const int begin = place + in.padding - in.kernel + 1;
    return begin <= 0 ? 0 : (begin + in.stride - 1) / in.stride;
  };
  const auto last_of = [&](int place, int windows) {
    const int last = (place + in.padding) / in.stride;
    return last < windows ? last : windows - 1;
  };
  float sum[kWidth] = {};
  const int last_row = last_of(at.row, in.out_height), last_column = last_of(at.column, in.out_width);
  for (int oh = first_of(at.row); oh <= last_row; ++oh)
    for (int ow = first_of(at.column); ow <= last_column; ++ow) {
      const int64_t out =
          ((static_cast<int64_t>(at.image * in.out_height + oh) * in.out_width + ow) * in.vectors + at.vector) * kWidth;
      const auto mine = static_cast<uint8_t>((at.row + in.padding - oh * in.stride) * in.kernel +
                                             (at.column + in.padding - ow * in.stride));
      const auto where = *reinterpret_cast<const Bytes<kWidth>*>(places + out);
      float g[kWidth], more[kWidth] = {};
      Pack<T>::load(dy + out, g);
      if (more_dy) Pack<T>::load(more_dy + out, more);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum[i] += where.all[i] == mine ? g[i] + more[i] : 0;
    }
  Pack<T>::store(sum, dx + at.index * kWidth);
}

Images images_of(const PoolShape& shape) {
  const auto number = [](int64_t n) { return static_cast<int>(n); };
  return {number(shape.height),
          number(shape.width),
          number(shape.out_height()),
          number(shape.out_width()),
          number(shape.channels / vector_width(shape.type)),
          shape.kernel,
          shape.stride,
          shape.padding};
}

/// One block for each kThreads vectors of each row.
dim3 grid_of(int64_t rows, int64_t vectors_in_row) {
  constexpr int64_t kMax = 65535;  // blocks in y
  const int64_t deep = (rows + kMax - 1) / kMax;
  return dim3(static_cast<unsigned>((vectors_in_row + kThreads - 1) / kThreads),
              static_cast<unsigned>((rows + deep - 1) / deep), static_cast<unsigned>(deep));
}

}  // namespace

void max_pool_forward(const PoolShape& shape, const void* x, void* y, uint8_t* places, Stream stream) {
  const Images in = images_of(shape);
  const dim3 grid = grid_of(shape.images * in.out_height, static_cast<int64_t>(in.out_width) * in.vectors);
  with_type(shape.type, [&](auto type) {
    using T = decltype(type);
    forward<T><<<grid, kThreads, 0, stream>>>(static_cast<const T*>(x), static_cast<T*>(y), places, in,
                                              static_cast<int>(shape.images));
  });
  check_launch("max pooling");
}

void max_pool_backward(const PoolShape& shape, const void* dy, const void* more_dy, const uint8_t* places, void* dx,
                       Stream stream) {
  const Images in = images_of(shape);
  const dim3 grid = grid_of(shape.images * in.height, static_cast<int64_t>(in.width) * in.vectors);
  with_type(shape.type, [&](auto type) {
    using T = decltype(type);
    backward<T><<<grid, kThreads, 0, stream>>>(static_cast<const T*>(dy), static_cast<const T*>(more_dy), places,
                                               static_cast<T*>(dx), in, static_cast<int>(shape.images));
  });
  check_launch("max pooling, backward");
}

}  // namespace trireme::nn::kernels::cuda
