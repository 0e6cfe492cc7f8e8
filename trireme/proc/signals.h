// The signals that a launcher acts upon, let in only where it waits.
#pragma once

#include <signal.h>

#include <optional>
#include <utility>
#include <vector>

#include "trireme/core/deadline.h"

namespace trireme::proc {

/// SIGINT, SIGTERM and SIGHUP: requests to end.
bool asks_to_end(int number);

/// From construction on, SIGINT, SIGTERM, SIGHUP and `more` are blocked in this thread and those it starts later, and
/// SIGPIPE is ignored; SIGHUP and SIGTSTP only unless they are ignored already, as under nohup.
/// ProcessSet::wait(deadline, gate.open()) lets them in; take() tells which came. Make one at a time, before any
/// thread. The destructor puts everything back.
class SignalGate {
 public:
  explicit SignalGate(const std::vector<int>& more = {});
  ~SignalGate();
  SignalGate(const SignalGate&) = delete;
  SignalGate& operator=(const SignalGate&) = delete;

  const sigset_t* open() const { return &open_; }
  /// The numbers that it keeps out.
  const sigset_t& blocked() const { return blocked_; }
  /// The oldest signal not yet taken.
  std::optional<int> take();
  /// Waits until the deadline for a signal, then take(). A deadline that has passed lets in what waits outside: for
  /// places that wait for something else.
  std::optional<int> look(Deadline deadline);

 private:
  sigset_t open_{};
  sigset_t blocked_{};
  sigset_t before_{};
  std::vector<std::pair<int, struct sigaction>> handlers_;
};

/// What Ctrl-Z does to a process that does not catch it: returns when SIGCONT has come. A process whose group no shell
/// looks after is not stopped, because nothing would continue it.
void stop_this_process();

}  // namespace trireme::proc
