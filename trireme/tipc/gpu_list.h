// One alternative of the line `gpu_list`: which devices, on which machines.
//
//   -1               one process on the CPU               cpu:2              two processes on the CPU
//   0                one process on GPU 0                 0,1                two processes, a GPU each
//   10.0.0.1,10.0.0.2;0,1    GPUs 0 and 1 on each machine           10.0.0.1,10.0.0.2;cpu:2    two processes on each
//
//   parse_placement("10.0.0.1,10.0.0.2;0").launch_options()  ->  {"--ips", "10.0.0.1,10.0.0.2", "--gpus", "0"}
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::tipc {

struct Placement {
  std::vector<std::string> hosts;  ///< empty: this machine
  std::vector<int> gpus;           ///< empty: the CPU
  int processes = 1;               ///< on each machine

  bool operator==(const Placement&) const = default;

  bool on_cpu() const { return gpus.empty(); }
  std::optional<int> first_gpu() const { return on_cpu() ? std::nullopt : std::optional(gpus.front()); }
  int nodes() const { return hosts.empty() ? 1 : static_cast<int>(hosts.size()); }
  int devices() const { return nodes() * processes; }
  /// Words for `trireme launch`.
  std::vector<std::string> launch_options() const;
  /// "0,1" or "cpu2": for the names of files.
  std::string device_text() const;
};

/// Throws UsageError; `what` names the line in it.
Placement parse_placement(std::string_view text, std::string_view what);

/// The same on one machine with one device: what a speed-up is counted from.
Placement single(const Placement& placement);

}  // namespace trireme::tipc
