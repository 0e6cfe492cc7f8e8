// The native stack of a process, from gdb or eu-stack where one is installed, else what /proc tells.
//
//   StackDump dump(pid);
//   while (!dump.done()) …                // the caller's loop; never blocks
//   dump.lines()                          "#0  0x... in nanosleep () from libc.so.6"
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/core/deadline.h"
#include "trireme/proc/process_set.h"

namespace trireme::launch {

/// Of the stacks of all threads, the main one first, those that lines() shows.
std::vector<std::string> select_frames(const std::string& output);

class StackDump {
 public:
  /// Starts the tool; `deadline` is for its answer.
  StackDump(int pid, Deadline deadline);

  /// Reads what has come. True when the tool has ended or the deadline has passed.
  bool done();
  /// Waits for more, or until the deadline.
  void wait();
  /// Whether the tool may still hold the process.
  bool running() const { return tool_.has_value(); }
  /// The frames of the main thread, the innermost first; not empty. Where it waits for a Loader: also those of the
  /// thread that is in the dataset.
  std::vector<std::string> lines() const;

 private:
  const int pid_;
  const Deadline deadline_;
  void read(Deadline deadline);

  std::optional<proc::ProcessSet> tool_;  // nothing: no tool, or it has ended
  bool asked_ = false;                    // a debugger was started
  std::string output_;
};

}  // namespace trireme::launch
