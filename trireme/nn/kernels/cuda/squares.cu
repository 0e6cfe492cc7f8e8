#include "trireme/nn/kernels/cuda/launch.cuh"
#include "trireme/nn/kernels/cuda/squares.h"

namespace trireme::nn::kernels::cuda {
namespace {

/// A thread makes one pixel; a block some pixels of one row (blockIdx.x of all images).
template <typename From, typename To>
__global__ void __launch_bounds__(kThreads)
    squares(const From* __restrict__ x, To* __restrict__ y, SquaresShape shape) {
  constexpr int kWidth = Pack<To>::kWidth, kMaxChannels = 4;
  const int out_width = static_cast<int>(shape.out_width()), out_height = static_cast<int>(shape.out_height());
  const int place = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
  if (place >= out_width) return;
  const int image = static_cast<int>(blockIdx.x) / out_height;
  const int row = static_cast<int>(blockIdx.x) - image * out_height - static_cast<int>(shape.before);
  const int column = place - static_cast<int>(shape.before), channels = static_cast<int>(shape.channels);
  float numbers[4 * kMaxChannels] = {};
  if (row >= 0 && row < shape.height / 2 && column >= 0 && column < shape.width / 2) {
    const From* from = x + image * shape.strides[0] + 2 * row * shape.strides[2] + 2 * column * shape.strides[3];
#pragma unroll
    for (int i = 0; i < 4 * kMaxChannels; ++i) {
      const int corner = i / channels;
      if (corner < 4)
        numbers[i] = static_cast<float>(
            from[i % channels * shape.strides[1] + corner / 2 * shape.strides[2] + corner % 2 * shape.strides[3]]);
    }
  }
  To* out = y + (static_cast<int64_t>(blockIdx.x) * out_width + place) * (4 * kMaxChannels);
#pragma unroll
  for (int vector = 0; vector < 4 * kMaxChannels / kWidth; ++vector) {
    float some[kWidth];
#pragma unroll
    for (int i = 0; i < kWidth; ++i) some[i] = numbers[vector * kWidth + i];
    Pack<To>::store(some, out + vector * kWidth);
  }
}

}  // namespace

void to_squares(const SquaresShape& shape, const void* x, void* y, Stream stream) {
  const dim3 grid(static_cast<unsigned>(shape.images * shape.out_height()),
                  static_cast<unsigned>((shape.out_width() + kThreads - 1) / kThreads));
  with_type(shape.from, [&](auto from) {
    with_type(shape.to, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      squares<From, To><<<grid, kThreads, 0, stream>>>(static_cast<const From*>(x), static_cast<To*>(y), shape);
    });
  });
  check_launch("first convolution");
}

}  // namespace trireme::nn::kernels::cuda
