// The native stack of a process, from gdb or eu-stack where one is installed, else what /proc tells.
//
//   StackDump dump(pid, Deadline::in(20s));
//   while (!dump.done()) …                // the caller's loop; up to 1 s to end a tool that is late
//   dump.lines()                          "#0  0x... in nanosleep () from libc.so.6"
//
// A debugger stops the process by a signal, which a thread that waits for a disk takes later: perhaps when the debugger
// has gone. So none is started while a thread waits for a disk; and when a tool is ended before its time, the process
// gets SIGCONT.
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
  /// Starts the tool, or done() does as soon as no thread waits for a disk; `deadline` is for its answer.
  StackDump(int pid, Deadline deadline);
  ~StackDump();
  StackDump(const StackDump&) = delete;
  StackDump& operator=(const StackDump&) = delete;

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
  enum class Tool { absent, waits_for_disk, runs, ended, killed };
  void start();
  void end(Tool how);
  void read(Deadline deadline);
  std::string reason() const;

  const int pid_;
  const Deadline deadline_;
  const Deadline disk_deadline_;  // for the threads that wait for a disk
  const std::vector<std::string> command_;
  const bool was_stopped_;
  std::optional<proc::ProcessSet> tool_;
  Tool state_ = Tool::absent;
  std::string output_;
};

}  // namespace trireme::launch
