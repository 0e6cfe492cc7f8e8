// The end of a log file, cut at the beginning of a line.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace trireme::launch {

inline constexpr size_t kLogTailBytes = 32u << 10;

/// "" when it cannot be read.
std::string log_tail(const std::filesystem::path& path, size_t most = kLogTailBytes);

}  // namespace trireme::launch
