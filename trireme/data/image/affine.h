// Shearing, shifting and turning, equal to Pillow's Image.transform(AFFINE) and Image.rotate.
//
//   affine(image, {.xx = 1, .xy = 0.3, .yy = 1}, {.interpolation = Interpolation::bicubic, .fill = {128, 128, 128}});
//
// In place, the size stays. Thread-safe.
#pragma once

#include <array>

#include "trireme/data/image/image.h"
#include "trireme/data/image/resize.h"

namespace trireme::image {

/// Where a pixel of the result comes from: x' = xx * x + xy * y + x0, y' = yx * x + yy * y + y0.
struct Matrix {
  double xx = 1, xy = 0, x0 = 0;
  double yx = 0, yy = 1, y0 = 0;
};

struct AffineOptions {
  Interpolation interpolation = Interpolation::nearest;
  std::array<uint8_t, kChannels> fill{0, 0, 0};  ///< for what lies outside
};

void affine(Image& image, const Matrix& matrix, const AffineOptions& options);

/// Against the clock, about the middle.
void rotate(Image& image, double degrees, const AffineOptions& options);

}  // namespace trireme::image
