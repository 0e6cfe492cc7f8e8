#include "trireme/core/memory.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "trireme/core/file.h"
#include "trireme/core/text.h"

namespace trireme {
namespace {

size_t memory_of_host() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<size_t>(pages) * static_cast<size_t>(page) : size_t{1} << 34;
}

// The largest number where there is no limit.
size_t memory_of_container() {
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"})
    if (const auto text = read_file(path))
      if (const auto bytes = parse_int(trim(*text), 1, INT64_MAX)) return static_cast<size_t>(*bytes);
  return SIZE_MAX;
}

}  // namespace

size_t memory_of_machine() {
  return std::min(memory_of_host(), memory_of_container());
}

std::string bytes_text(double bytes) {
  constexpr double kMiB = 1 << 20, kGiB = 1 << 30;
  return bytes < kGiB ? fmt::format("{:.1f} MiB", bytes / kMiB) : fmt::format("{:.1f} GiB", bytes / kGiB);
}

}  // namespace trireme
