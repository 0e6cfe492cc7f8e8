// What the kernel says about a process: whether it runs, sleeps, is stopped or is held by a debugger.
//
//   const ProcessState state = read_process_state(pid);
//   if (state == ProcessState::stopped) …
#pragma once

#include <string>
#include <string_view>

namespace trireme::watch {

enum class ProcessState {
  unknown,
  running,   // or ready to run
  sleeping,  // it waits for something
  disk,      // it waits and cannot be interrupted: usually a disk or a network file system
  stopped,   // by SIGSTOP or Ctrl-Z
  traced,    // a debugger holds it or may hold it
  exited,    // it ended with exit code 0
  dead,      // it ended in another way
};

/// "running", "stopped"; "" for unknown.
const char* words_of(ProcessState state);

/// Of /proc/PID/stat and /proc/PID/status. Unknown when there is no such process.
ProcessState read_process_state(int pid);
/// The letter of /proc/PID/stat and the line TracerPid of /proc/PID/status, of their texts.
ProcessState parse_process_state(std::string_view stat, std::string_view status);

/// Whether the process is `ancestor` itself or was started by it, directly or not.
bool descends_from(int pid, int ancestor);

/// Where in the kernel the main thread waits: "futex_wait_queue", or "" when that is not told.
std::string read_wait_channel(int pid);

}  // namespace trireme::watch
