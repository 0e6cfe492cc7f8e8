#include "trireme/tipc/png_file.h"

#include <algorithm>

namespace trireme::tipc {
namespace {

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

uint32_t adler32(std::string_view bytes) {
  constexpr uint32_t kModulus = 65521;
  uint32_t low = 1, high = 0;
  for (const char byte : bytes) {
    low = (low + static_cast<uint8_t>(byte)) % kModulus;
    high = (high + low) % kModulus;
  }
  return high << 16 | low;
}

std::string chunk(std::string_view type, std::string_view content) {
  const std::string body = std::string(type) + std::string(content);
  return big_endian(static_cast<uint32_t>(content.size())) + body + big_endian(crc32(body));
}

/// A zlib stream of stored blocks.
std::string stored(std::string_view bytes) {
  constexpr size_t kBlock = 65535;
  std::string stream("\x78\x01", 2);
  for (size_t at = 0; at < bytes.size(); at += kBlock) {
    const std::string_view block = bytes.substr(at, kBlock);
    const auto size = static_cast<uint16_t>(block.size());
    stream += static_cast<char>(at + kBlock >= bytes.size());  // whether it is the last
    for (const uint16_t number : {size, static_cast<uint16_t>(~size)}) {
      stream += static_cast<char>(number & 0xff);
      stream += static_cast<char>(number >> 8);
    }
    stream += block;
  }
  return stream + big_endian(adler32(bytes));
}

}  // namespace

uint32_t crc32(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc;
}

std::string png_of(uint32_t width, uint32_t height, const std::vector<uint8_t>& pixels) {
  std::string rows;
  for (uint32_t y = 0; y < height; ++y) {
    rows += '\0';  // the row is not filtered
    const auto* row = reinterpret_cast<const char*>(pixels.data()) + size_t{3} * width * y;
    rows.append(row, size_t{3} * width);
  }
  const std::string header = big_endian(width) + big_endian(height) + std::string("\x08\x02\0\0\0", 5);
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("IDAT", stored(rows)) + chunk("IEND", "");
}

}  // namespace trireme::tipc
