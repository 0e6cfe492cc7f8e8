// Did the kernel kill a process because memory ran out? A plain SIGKILL does not say; the kernel's counters and log do.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace trireme::proc {

/// Make one before the processes start; ask after one was killed by a SIGKILL that we did not send.
class MemoryKillWatch {
 public:
  MemoryKillWatch();
  /// True when the kernel's counters moved since construction and, where its log is readable, the log names the pid.
  bool killed(pid_t pid) const;

 private:
  std::string cgroup_file_;
  std::optional<int64_t> cgroup_before_;
  std::optional<int64_t> machine_before_;
};

/// The number after `key` in lines of "key number" (memory.events, memory.oom_control, vmstat).
std::optional<int64_t> counter_in(const std::string& text, const std::string& key);
/// The file with this process' memory events, given the text of /proc/self/cgroup; empty when there is none.
std::string memory_events_file(const std::string& proc_self_cgroup);

}  // namespace trireme::proc
