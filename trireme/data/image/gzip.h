// Whole files that may be compressed by gzip.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace trireme::data {

/// The content of a plain or gzip file; which of the two is told by its first bytes, not by its name. Throws
/// SystemError when it cannot be read, UsageError when the compressed data is damaged or the content is larger than
/// `limit` bytes: a small file can unpack to any size.
std::string read_plain_or_gzip(const std::filesystem::path& path, size_t limit);

}  // namespace trireme::data
