#include "trireme/deploy/serve/port_file.h"

#include <system_error>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/text.h"

namespace trireme::serve {

namespace fs = std::filesystem;

PortFile::PortFile(fs::path path) : path_(std::move(path)) {
  std::error_code failed;
  if (path_.empty() || !fs::exists(fs::symlink_status(path_, failed))) return;
  if (!fs::is_regular_file(fs::symlink_status(path_, failed)))
    throw UsageError("--port-file {} is not a file; name one that may be overwritten", printable(path_.string()));
  if (!fs::remove(path_, failed) && failed)
    throw SystemError(failed.value(), "cannot remove the old {} (--port-file)", printable(path_.string()));
}

void PortFile::write(uint16_t port) {
  if (path_.empty()) return;
  content_ = std::to_string(port) + "\n";
  write_file_atomically(path_, content_, {.durable = false});
}

void PortFile::remove() noexcept {
  const std::string ours = std::exchange(content_, {});
  std::error_code ignored;
  if (ours.empty() || !fs::is_regular_file(fs::symlink_status(path_, ignored))) return;  // a pipe would be waited for
  if (read_head(path_, ours.size() + 1) != ours) return;
  fs::remove(path_, ignored);
}

}  // namespace trireme::serve
