// The input of a network's first convolution, which has few channels and a stride of 2, on a GPU: each square of 2x2
// pixels becomes one pixel of four times the channels, for which matrix units are made.
#pragma once

#include "trireme/nn/kernels/cuda/types.h"

namespace trireme::nn::kernels::cuda {

struct SquaresShape {
  int64_t images = 0;
  int64_t channels = 0;           ///< 4 at most
  int64_t height = 0, width = 0;  ///< of the input, both even
  int64_t strides[4] = {};        ///< of the input, in numbers: image, channel, row, column
  int64_t before = 0, after = 0;  ///< squares of zeros around the picture, in both directions
  Type from = Type::float32, to = Type::float32;

  constexpr int64_t out_height() const { return height / 2 + before + after; }
  constexpr int64_t out_width() const { return width / 2 + before + after; }
};

/// The result has 16 channels.
inline constexpr int64_t kSquareChannels = 16;

/// Channel (2 * row + column of the square) * channels + channel of the picture; zeros in those that are left.
void to_squares(const SquaresShape& shape, const void* x, void* y, Stream stream);

}  // namespace trireme::nn::kernels::cuda
