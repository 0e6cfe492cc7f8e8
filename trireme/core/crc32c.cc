#include "trireme/core/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

namespace trireme {
namespace {

static_assert(std::endian::native == std::endian::little, "eight bytes are read as one little-endian word");

constexpr uint32_t kPolynomial = 0x82f63b78;  // the lowest bit first
using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b]: what byte b does to the sum when k more bytes follow it.
constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = tables[k - 1][byte] >> 8 ^ tables[0][tables[k - 1][byte] & 255];
  return tables;
}

constexpr Tables kTables = make_tables();

uint32_t eight_bytes(const char* at, uint32_t crc) {
  uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  word ^= crc;
  uint32_t sum = 0;
  for (size_t k = 0; k < 8; ++k) sum ^= kTables[7 - k][word >> 8 * k & 255];
  return sum;
}

}  // namespace

uint32_t crc32c(std::string_view bytes, uint32_t before) {
  uint32_t crc = ~before;
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) crc = eight_bytes(bytes.data(), crc);
  for (const char byte : bytes) crc = crc >> 8 ^ kTables[0][(crc ^ static_cast<uint8_t>(byte)) & 255];
  return ~crc;
}

}  // namespace trireme
