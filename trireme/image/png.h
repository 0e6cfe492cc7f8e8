// Reads a PNG. Throws ImageError. Thread-safe.
#pragma once

#include <span>

#include "trireme/image/decode.h"

namespace trireme::image {

/// By the first bytes.
bool is_png(std::span<const char> bytes);

Size png_size(std::span<const char> bytes, const DecodeOptions& options);
void read_png(std::span<const char> bytes, const DecodeOptions& options, Image& image);

}  // namespace trireme::image
