#include "trireme/data/image/orient.h"

#include <cstring>
#include <utility>

#include "trireme/data/image/ops.h"

namespace trireme::image {
namespace {

constexpr size_t kTiffBegin = 6;  // behind "Exif\0\0"
constexpr size_t kEntryBytes = 12;
constexpr unsigned kOrientationTag = 0x0112;

/// The numbers of a TIFF file, in its own byte order; 0 for what lies outside.
class Tiff {
 public:
  explicit Tiff(std::span<const unsigned char> bytes) : bytes_(bytes), little_(!bytes.empty() && bytes[0] == 'I') {}

  unsigned number(size_t at, size_t width) const {
    if (at > bytes_.size() || bytes_.size() - at < width) return 0;
    unsigned value = 0;
    for (size_t i = 0; i < width; ++i) value = value << 8 | bytes_[at + (little_ ? width - 1 - i : i)];
    return value;
  }

 private:
  std::span<const unsigned char> bytes_;
  bool little_;
};

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

int parse_orientation(std::span<const unsigned char> exif) {
  if (exif.size() < kTiffBegin || std::memcmp(exif.data(), "Exif\0", kTiffBegin) != 0) return 1;
  const Tiff tiff(exif.subspan(kTiffBegin));
  const size_t directory = tiff.number(4, 4);
  const size_t entries = tiff.number(directory, 2);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + i * kEntryBytes;
    if (tiff.number(entry, 2) != kOrientationTag) continue;
    const unsigned value = tiff.number(entry + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

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
