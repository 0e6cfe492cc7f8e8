// --ssh: the whole job from one terminal. This launcher starts `trireme launch` on every host over ssh and shows what
// they say; the launchers over there form the job among themselves, as if each had been typed in by hand.
//
//   terminal ── ssh ── launcher on host a ── workers
//            └─ ssh ── launcher on host b ── workers
//
// The pipe to each remote launcher's standard input carries the job's token as its first line, then a byte for each
// signal. When it ends, the terminal is gone, and the remote launcher stops its part of the job.
#pragma once

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/core/fd.h"
#include "trireme/core/token.h"
#include "trireme/launch/options/request.h"

namespace trireme::launch {

/// The terminal's side. Returns the exit code of the job. Uses the command TRIREME_SSH (default: ssh in batch mode).
int run_over_ssh(const Request& request);

/// What is executed on the host with number `index`, as one line for its shell. Pure.
std::string remote_command_line(const Request& request, size_t index, const std::string& program,
                                const std::string& directory);

/// The byte that stands for a signal in the pipe, and back. What is not in the list ends the job, as SIGTERM does.
char byte_of_signal(int signal);
int signal_of_byte(char byte);

/// The other side of the pipe, in the remote launcher (--ssh_child).
struct SshChild {
  std::optional<Token> token;
  int end_of_input = -1;

  /// Waits at most 10 s for the token line. Throws PeerError when it does not come or is not one.
  static SshChild from_standard_input();
};

/// Watches standard input while no worker runs: until this ends, a signal byte becomes that signal of this process, and
/// the end of the input SIGTERM.
class TerminalWatch {
 public:
  explicit TerminalWatch(int end_of_input);  // -1: watches nothing
  ~TerminalWatch();
  TerminalWatch(const TerminalWatch&) = delete;
  TerminalWatch& operator=(const TerminalWatch&) = delete;

 private:
  FdPair stop_;
  std::thread thread_;
};

}  // namespace trireme::launch
