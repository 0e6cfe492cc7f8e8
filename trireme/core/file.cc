#include "trireme/core/file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>

#include "trireme/core/error.h"
#include "trireme/core/fd.h"

namespace trireme {

std::optional<std::string> read_file(const std::filesystem::path& path, size_t limit) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  std::string content;
  char buffer[65536];
  for (;;) {
    const ssize_t n = ::read(file.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0 || content.size() >= limit) break;
    content.append(buffer, static_cast<size_t>(n));
  }
  if (content.size() > limit) content.resize(limit);
  return content;
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content, WriteOptions options) {
  const std::string temporary = fmt::format("{}.{}.tmp", path.string(), ::getpid());
  const UniqueFd file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file) throw SystemError(errno, "cannot write {}", path.string());
  const auto synced = [&] { return !options.durable || ::fsync(file.get()) == 0; };
  if (!write_all(file.get(), content) || !synced() || ::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    throw SystemError(error, "cannot write {}", path.string());
  }
}

TempDir::TempDir(std::string_view prefix) {
  std::string pattern = fmt::format("{}/{}-XXXXXX", std::filesystem::temp_directory_path().string(), prefix);
  if (!::mkdtemp(pattern.data())) throw SystemError(errno, "cannot make a temporary directory {}", pattern);
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace trireme
