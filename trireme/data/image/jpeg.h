// Reads a JPEG: all of it, or only the rows and columns that are needed, at full size or at a fraction.
//
//   JpegReader reader(bytes, {});
//   const Region got = reader.read({.x = 100, .y = 50, .width = 64, .height = 64}, 1, image);
//
// A reader reads once; `bytes` must outlive it. Throws ImageError. One thread at a time.
#pragma once

#include <memory>
#include <span>

#include "trireme/data/image/decode.h"

namespace trireme::image {

/// By the first bytes.
bool is_jpeg(std::span<const char> bytes);

class JpegReader {
 public:
  /// Reads the header.
  JpegReader(std::span<const char> bytes, const DecodeOptions& options);
  ~JpegReader();
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  /// As stored, before any turning.
  Size size() const;
  /// What EXIF says, 1 … 8; 1 is upright, also when it says nothing.
  int orientation() const;

  void read(Image& image);
  /// At 1/denominator (1, 2, 4 or 8) of the size: at least `wanted`, given in pixels of that smaller picture, and up to
  /// a few columns more. Returns what the image holds. Pixels are equal to those of a whole read at that fraction. Sees
  /// no damage below the last row, but a file without an end is an error all the same.
  Region read(const Region& wanted, int denominator, Image& image);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme::image
