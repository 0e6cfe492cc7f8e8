#include "trireme/data/image/orient.h"

#include <cstring>

#include "trireme/data/image/ops.h"

namespace trireme::image {
namespace {

/// Rows become columns.
void transpose(Image& image) {
  Image out;
  out.reshape(image.height, image.width);
  for (int y = 0; y < image.height; ++y) {
    const uint8_t* from = image.row(y);
    for (int x = 0; x < image.width; ++x) std::memcpy(out.row(x) + y * kChannels, from + x * kChannels, kChannels);
  }
  image = std::move(out);
}

}  // namespace

void orient(Image& image, int orientation) {
  if (orientation >= 5) transpose(image);
  switch (orientation) {
    case 2:
    case 6:
      return flip(image, 1);
    case 4:
    case 8:
      return flip(image, 0);
    case 3:
    case 7:
      return flip(image, -1);
    default:
      return;
  }
}

Size oriented(Size stored, int orientation) {
  return orientation >= 5 ? Size{stored.height, stored.width} : stored;
}

}  // namespace trireme::image
