#include "trireme/tipc/png_file.h"

#include <zlib.h>

#include <new>

namespace trireme::tipc {
namespace {

std::string chunk(std::string_view type, std::string_view content) {
  const std::string body = std::string(type) + std::string(content);
  return big_endian({static_cast<uint32_t>(content.size())}) + body + big_endian({crc32(body)});
}

/// A zlib stream without compression.
std::string stored(const std::string& bytes) {
  uLongf size = ::compressBound(bytes.size());
  std::string stream(size, '\0');
  const int result = ::compress2(reinterpret_cast<Bytef*>(stream.data()), &size,
                                 reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), Z_NO_COMPRESSION);
  if (result != Z_OK) throw std::bad_alloc();  // the buffer is large enough: memory is all that can be missing
  stream.resize(size);
  return stream;
}

}  // namespace

uint32_t crc32(std::string_view bytes) {
  return static_cast<uint32_t>(::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::string big_endian(std::initializer_list<uint32_t> numbers) {
  std::string bytes;
  for (const uint32_t number : numbers)
    for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(number >> shift & 0xff);
  return bytes;
}

std::string png_of(uint32_t width, uint32_t height, const std::vector<uint8_t>& pixels) {
  std::string rows;
  for (uint32_t y = 0; y < height; ++y) {
    rows += '\0';  // the row is not filtered
    const auto* row = reinterpret_cast<const char*>(pixels.data()) + size_t{3} * width * y;
    rows.append(row, size_t{3} * width);
  }
  const std::string header = big_endian({width, height}) + std::string("\x08\x02\0\0\0", 5);
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("IDAT", stored(rows)) + chunk("IEND", "");
}

}  // namespace trireme::tipc
