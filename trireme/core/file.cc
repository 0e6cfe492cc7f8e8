#include "trireme/core/file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>

#include "trireme/core/durable.h"
#include "trireme/core/error.h"
#include "trireme/core/fd.h"
#include "trireme/core/text.h"

namespace trireme {

std::optional<std::string> read_head(const std::filesystem::path& path, size_t size) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  std::string content;
  char buffer[65536];
  for (;;) {
    const ssize_t n = ::read(file.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0 || content.size() >= size) break;
    content.append(buffer, static_cast<size_t>(n));
  }
  if (content.size() > size) content.resize(size);
  return content;
}

std::optional<std::string> read_file(const std::filesystem::path& path, size_t limit) {
  auto content = read_head(path, limit + 1);
  if (!content || content->size() <= limit) return content;
  std::error_code ignored;
  const auto known = std::filesystem::file_size(path, ignored);  // pipes and devices have none
  throw UsageError("the file {} has {} bytes{}; at most {} are read", printable(path.string()),
                   ignored || known <= limit ? content->size() : known, ignored || known <= limit ? " or more" : "",
                   limit);
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content, WriteOptions options) {
  DurableFile file(path, {.bytes_needed = content.size(), .flush = options.durable});
  file.write(content);
  file.commit();
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
