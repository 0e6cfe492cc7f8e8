// Resizing, the way OpenCV and Pillow do it.
//
//   Image small;
//   resize(view_of(image), {224, 224}, {.interpolation = Interpolation::bicubic, .backend = Backend::pil}, small);
//
// Backend cv2 reads the two (bilinear) or four (bicubic) pixels nearest to the middle of the new pixel, however much
// the picture shrinks. Backend pil widens its filter with the shrinking (antialias), in two passes of 8 bit each.
// Guarantees: results are equal to those libraries to the bit, but bicubic of cv2 only within 1 of 255
// (tests/interop/image_test.py). Pillow means across first and then down, as all its versions before 13 do; version 13
// chooses the order by the sizes. Thread-safe.
#pragma once

#include "trireme/data/image/image.h"

namespace trireme::image {

enum class Interpolation { nearest, bilinear, bicubic };
enum class Backend { cv2, pil };

struct ResizeMethod {
  Interpolation interpolation = Interpolation::bilinear;
  Backend backend = Backend::cv2;
  bool operator==(const ResizeMethod&) const = default;
};

/// Requires: both sizes at least 1x1, `out` not the owner of `source`.
void resize(const View& source, Size size, const ResizeMethod& method, Image& out);

}  // namespace trireme::image
