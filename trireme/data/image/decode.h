// Pictures out of the bytes of JPEG and PNG files.
//
//   const std::optional<std::string> bytes = read_file(path);
//   Image image = decode(*bytes);
//   Size size = read_size(*bytes);  // looks at the header only
//
// What comes out equals cv2.imdecode(bytes, IMREAD_COLOR) in RGB order: grey becomes three equal channels, CMYK and
// YCCK become RGB, the orientation of a JPEG's EXIF is applied, PNG's 16 bit samples keep their high byte, palettes are
// looked up and transparency is dropped.
// Stricter than cv2: a JPEG that ends early or holds damaged data is an error, not a picture with a grey lower half; so
// is a PNG with a wrong checksum. Harmless oddities (stray bytes between markers, unknown versions) pass.
// Nothing is printed and nothing aborts. What a picture costs is bounded by its size: a JPEG may have 500 scans when it is
// small and 32 when it is large, as each is a pass over all pixels; a PNG's texts, profiles and EXIF 1 MiB. Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "trireme/core/error.h"
#include "trireme/data/image/image.h"

namespace trireme::image {

/// The bytes cannot be decoded, and why. The message has no path: the caller that knows it adds it.
class ImageError : public UsageError {
 public:
  using UsageError::UsageError;
};

/// "a GIF", "a BMP": what the bytes are when they are not a JPEG or PNG but begin like another known format. Else empty.
std::string_view other_format(std::string_view bytes);
/// Whether they are the beginning of HTML or XML, such as the page of a failed download.
bool is_markup(std::string_view bytes);

struct DecodeOptions {
  /// A header that promises more is refused before memory is taken: a few hundred bytes can claim gigabytes.
  int64_t max_pixels = int64_t{1} << 27;
  /// Asked between the rows of a JPEG, whose scans may take seconds: true ends the decoding. Must not throw.
  std::function<bool()> stop = {};
};

/// Throws ImageError.
Image decode(std::span<const char> bytes, const DecodeOptions& options = {});
/// The same into an image whose memory is used again.
void decode(std::span<const char> bytes, Image& image, const DecodeOptions& options = {});

/// The size decode() would give, from the header alone: the pixels may still turn out to be damaged. Throws ImageError.
Size read_size(std::span<const char> bytes, const DecodeOptions& options = {});

}  // namespace trireme::image
