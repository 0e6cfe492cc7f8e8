// Files: whole reads, writes that are never seen half done, and directories that remove themselves.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

/// Of a whole file, unless another limit is given.
inline constexpr size_t kReadLimit = 64u << 20;

/// The whole file, or nothing when it cannot be read (errno says why). Throws UsageError when it has more than `limit`
/// bytes: half a file is never taken for all of it.
std::optional<std::string> read_file(const std::filesystem::path& path, size_t limit = kReadLimit);
/// The file's first `size` bytes, or as many as it has; nothing when it cannot be read.
std::optional<std::string> read_head(const std::filesystem::path& path, size_t size);

struct WriteOptions {
  bool durable = true;  ///< on the disk when the call returns; else only safe from a crash of this process
};

/// Writes beside the target and renames: a reader sees the old content or the new. Throws SystemError.
void write_file_atomically(const std::filesystem::path& path, std::string_view content, WriteOptions options = {});

/// A fresh directory (mode 0700) that is removed with everything in it.
class TempDir {
 public:
  explicit TempDir(std::string_view prefix = "trireme");
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace trireme
