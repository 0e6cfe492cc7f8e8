#include "trireme/proc/memory_kill.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "trireme/core/fd.h"
#include "trireme/core/file.h"
#include "trireme/core/text.h"

namespace trireme::proc {
namespace {

constexpr const char* kCounter = "oom_kill";

std::optional<int64_t> read_counter(const std::string& path) {
  const auto text = path.empty() ? std::nullopt : read_head(path, 1u << 20);
  return text ? counter_in(*text, kCounter) : std::nullopt;
}

bool moved(const std::optional<int64_t>& before, const std::optional<int64_t>& after) {
  return before && after && *after > *before;
}

// Whether the kernel's log says "Killed process <pid>"; nothing when the log cannot be read.
std::optional<bool> kernel_log_names(pid_t pid) {
  const UniqueFd log(::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!log) return std::nullopt;
  const std::string wanted = fmt::format("Killed process {} ", pid);
  char record[8192];
  for (;;) {
    const ssize_t size = ::read(log.get(), record, sizeof record);
    if (size < 0 && errno == EPIPE) continue;  // records were overwritten while we read
    if (size < 0 && errno == EPERM) return std::nullopt;
    if (size <= 0) return false;
    if (std::string_view(record, static_cast<size_t>(size)).find(wanted) != std::string_view::npos) return true;
  }
}

}  // namespace

std::optional<int64_t> counter_in(const std::string& text, const std::string& key) {
  for (const std::string& line : split(text, '\n'))
    if (line.starts_with(key + " ")) return parse_int(trim(line.substr(key.size())), 0, INT64_MAX);
  return std::nullopt;
}

std::string memory_events_file(const std::string& proc_self_cgroup) {
  for (const std::string& line : split(proc_self_cgroup, '\n')) {
    const auto parts = split(line, ':');
    if (parts.size() < 3) continue;
    if (parts[1] == "memory") return fmt::format("/sys/fs/cgroup/memory{}/memory.oom_control", parts[2]);
    const std::string unified = fmt::format("/sys/fs/cgroup{}/memory.events", parts[2]);
    if (parts[0] == "0" && std::filesystem::exists(unified)) return unified;
  }
  return {};
}

MemoryKillWatch::MemoryKillWatch()
    : cgroup_file_(memory_events_file(read_file("/proc/self/cgroup").value_or(""))),
      cgroup_before_(read_counter(cgroup_file_)),
      machine_before_(read_counter("/proc/vmstat")) {}

bool MemoryKillWatch::killed(pid_t pid) const {
  if (moved(cgroup_before_, read_counter(cgroup_file_))) return true;
  const auto named = kernel_log_names(pid);
  if (named && *named) return true;
  return !named && moved(machine_before_, read_counter("/proc/vmstat"));
}

}  // namespace trireme::proc
