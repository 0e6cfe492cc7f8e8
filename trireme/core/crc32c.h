// CRC-32C (Castagnoli): the checksum of event files and of checkpoints. It finds damage, not forgery.
//
//   uint32_t sum = crc32c("first part");
//   sum = crc32c("second part", sum);          // as of both parts in one
#pragma once

#include <cstdint>
#include <string_view>

namespace trireme {

/// `before`: the sum of what comes before `bytes`. Eight bytes at a time, by tables: far faster than a disk.
uint32_t crc32c(std::string_view bytes, uint32_t before = 0);

}  // namespace trireme
