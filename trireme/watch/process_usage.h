// What a process has used so far, as the kernel counts it.
#pragma once

#include <optional>

namespace trireme::watch {

struct Usage {
  double cpu_seconds = 0;
  double memory_bytes = 0;  // resident
};

/// Of /proc/PID/stat; nothing when there is no such process.
std::optional<Usage> read_usage(int pid);

}  // namespace trireme::watch
