// The smallest PNG writer: 8 bits of red, green and blue, not compressed. For pictures that are made, not kept.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::tipc {

/// `pixels`: red, green, blue of each pixel, row by row: width * height * 3 bytes.
std::string png_of(uint32_t width, uint32_t height, const std::vector<uint8_t>& pixels);

/// The check sum of its parts.
uint32_t crc32(std::string_view bytes);
/// Four bytes for each number, the highest first.
std::string big_endian(std::initializer_list<uint32_t> numbers);

}  // namespace trireme::tipc
