// How a process ended, as the kernel said it.
#pragma once

#include <string>

namespace trireme::proc {

class ExitStatus {
 public:
  ExitStatus() = default;
  static ExitStatus from_wait_status(int status);
  static ExitStatus exited(int code) { return ExitStatus(code, 0, false); }
  static ExitStatus signalled(int signal, bool core_dumped = false) { return ExitStatus(0, signal, core_dumped); }

  bool success() const { return signal_ == 0 && code_ == 0; }
  /// The exit code when the process ended by itself; 0 when a signal ended it.
  int code() const { return code_; }
  /// The signal that ended it, or 0.
  int signal() const { return signal_; }
  bool core_dumped() const { return core_dumped_; }
  /// What a shell would say: the code, or 128 + signal.
  int shell_code() const { return signal_ ? 128 + signal_ : code_; }
  bool operator==(const ExitStatus&) const = default;

 private:
  ExitStatus(int code, int signal, bool core_dumped) : code_(code), signal_(signal), core_dumped_(core_dumped) {}
  int code_ = 0;
  int signal_ = 0;
  bool core_dumped_ = false;
};

/// "exit 7", "killed by signal 11 (core dumped)".
std::string to_string(const ExitStatus& status);

}  // namespace trireme::proc
