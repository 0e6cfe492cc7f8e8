// Size and checksum of a file: how a manifest promises a file, and how a damaged one is found.
#pragma once

#include <cstdint>

namespace trireme {

struct FileSum {
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
  bool operator==(const FileSum&) const = default;
};

}  // namespace trireme
