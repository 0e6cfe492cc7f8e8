// A picture in memory: 8 bit RGB, row after row, the three channels of a pixel side by side.
//
//   Image image;
//   image.reshape(640, 480);
//   image.row(0)[2] = 255;  // the first pixel is blue
//
// Guarantees: pixels.size() == width * height * 3 after reshape(). Plain values: one thread at a time, as a vector.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::image {

struct Size {
  int width = 0;
  int height = 0;
  bool operator==(const Size&) const = default;
};

/// A rectangle of whole pixels.
struct Region {
  int x = 0;
  int y = 0;
  int width = 0;
  int height = 0;
  bool operator==(const Region&) const = default;
};

inline constexpr int kChannels = 3;

struct Image {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> pixels;

  /// Gives it another size and keeps the memory; what the pixels then hold is unspecified.
  void reshape(int new_width, int new_height) {
    width = new_width;
    height = new_height;
    pixels.resize(static_cast<size_t>(new_width) * static_cast<size_t>(new_height) * kChannels);
  }
  Size size() const { return {width, height}; }
  size_t stride() const { return static_cast<size_t>(width) * kChannels; }
  uint8_t* row(int y) { return pixels.data() + static_cast<size_t>(y) * stride(); }
  const uint8_t* row(int y) const { return pixels.data() + static_cast<size_t>(y) * stride(); }
  bool operator==(const Image&) const = default;
};

/// Pixels that another object owns, such as a part of an Image.
struct View {
  const uint8_t* pixels = nullptr;
  int width = 0;
  int height = 0;
  size_t stride = 0;  ///< bytes from one row to the next

  const uint8_t* row(int y) const { return pixels + static_cast<size_t>(y) * stride; }
};

inline View view_of(const Image& image) {
  return {image.pixels.data(), image.width, image.height, image.stride()};
}

/// Requires: the region lies within the image.
inline View view_of(const Image& image, const Region& region) {
  return {image.row(region.y) + static_cast<size_t>(region.x) * kChannels, region.width, region.height, image.stride()};
}

}  // namespace trireme::image
