#include "trireme/launch/live/log_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "trireme/core/fd.h"

namespace trireme::launch {

std::string log_tail(const std::filesystem::path& path, size_t most) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (!file || ::fstat(file.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return "";
  const auto size = static_cast<size_t>(facts.st_size);
  const size_t start = size - std::min(size, most);
  std::string text(size - start, '\0');
  const ssize_t count = ::pread(file.get(), text.data(), text.size(), static_cast<off_t>(start));
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  if (const size_t end = text.find('\n'); start > 0 && end != std::string::npos) text.erase(0, end + 1);
  return text;
}

}  // namespace trireme::launch
