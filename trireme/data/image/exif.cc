#include <cstdint>
#include <cstring>

#include "trireme/data/image/jpeg.h"

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

}  // namespace trireme::image
