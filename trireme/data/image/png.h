// Reads a PNG. Throws ImageError, and always where there is no libspng. Thread-safe.
#pragma once

#include <span>
#include <string_view>

#include "trireme/data/image/decode.h"

namespace trireme::image {

/// By the first bytes.
inline bool is_png(std::span<const char> bytes) {
  return std::string_view(bytes.data(), bytes.size()).starts_with("\x89PNG\r\n\x1a\n");
}

Size png_size(std::span<const char> bytes, const DecodeOptions& options);
void read_png(std::span<const char> bytes, const DecodeOptions& options, Image& image);

}  // namespace trireme::image
