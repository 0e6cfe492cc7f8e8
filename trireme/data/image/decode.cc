#include "trireme/data/image/decode.h"

#include <array>
#include <string_view>
#include <utility>

#include "trireme/core/text.h"
#include "trireme/data/image/jpeg.h"
#include "trireme/data/image/orient.h"
#include "trireme/data/image/png.h"

namespace trireme::image {
namespace {

using namespace std::string_view_literals;

constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kOthers{{
    {"GIF8"sv, "a GIF"sv},
    {"BM"sv, "a BMP"sv},
    {"II*\0"sv, "a TIFF"sv},
    {"MM\0*"sv, "a TIFF"sv},
    {"II+\0"sv, "a BigTIFF"sv},
    {"MM\0+"sv, "a BigTIFF"sv},
    {"\0\0\0\fjP"sv, "a JPEG 2000"sv},
    {"\0\0\0\fJXL "sv, "a JPEG XL"sv},
    {"\xff\x0a"sv, "a JPEG XL"sv},
}};

/// The brands of the container that AVIF, HEIC and MP4 share.
constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kBrands{{
    {"avif"sv, "an AVIF"sv},
    {"avis"sv, "an AVIF"sv},
    {"heic"sv, "a HEIC"sv},
    {"heix"sv, "a HEIC"sv},
    {"hevc"sv, "a HEIC"sv},
    {"mif1"sv, "a HEIF"sv},
    {"msf1"sv, "a HEIF"sv},
}};

std::string_view by_brand(std::string_view bytes) {
  if (bytes.size() < 12 || bytes.substr(4, 4) != "ftyp") return {};
  for (const auto& [brand, name] : kBrands)
    if (bytes.substr(8, 4) == brand) return name;
  return {};
}

[[noreturn]] void refuse(std::string_view bytes) {
  if (bytes.empty()) throw ImageError("no image: 0 bytes");
  if (const std::string_view name = other_format(bytes); !name.empty())
    throw ImageError("{}; only JPEG and PNG can be read", name);
  throw ImageError("no image: {} bytes that begin with {}, unlike JPEG and PNG", bytes.size(),
                   to_hex(bytes.substr(0, 8)));
}

}  // namespace

std::string_view other_format(std::string_view bytes) {
  if (bytes.starts_with("RIFF") && bytes.size() >= 12 && bytes.substr(8, 4) == "WEBP") return "a WebP";
  if (const std::string_view name = by_brand(bytes); !name.empty()) return name;
  for (const auto& [begin, name] : kOthers)
    if (bytes.starts_with(begin)) return name;
  return is_markup(bytes) ? "a text of HTML or XML, perhaps the page of a failed download" : std::string_view();
}

bool is_markup(std::string_view bytes) {
  return bytes.starts_with('<');
}

Image decode(std::span<const char> bytes, const DecodeOptions& options) {
  Image image;
  decode(bytes, image, options);
  return image;
}

void decode(std::span<const char> bytes, Image& image, const DecodeOptions& options) {
  if (is_png(bytes)) return read_png(bytes, options, image);
  if (!is_jpeg(bytes)) refuse({bytes.data(), bytes.size()});
  JpegReader reader(bytes, options);
  reader.read(image);
  orient(image, reader.orientation());
}

Size read_size(std::span<const char> bytes, const DecodeOptions& options) {
  if (is_png(bytes)) return png_size(bytes, options);
  if (!is_jpeg(bytes)) refuse({bytes.data(), bytes.size()});
  const JpegReader reader(bytes, options);
  return oriented(reader.size(), reader.orientation());
}

}  // namespace trireme::image
