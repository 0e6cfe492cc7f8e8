// The signals that end a launcher, let in only where it waits.
#pragma once

#include <signal.h>

#include <optional>
#include <utility>
#include <vector>

namespace trireme::proc {

/// From construction on, SIGINT, SIGTERM and SIGHUP (unless ignored, as under nohup) are blocked in this thread and
/// those it starts later, and SIGPIPE is ignored. ProcessSet::wait(deadline, gate.open()) lets them in; take() tells
/// which came. Make one at a time, before any thread. The destructor puts everything back.
class SignalGate {
 public:
  SignalGate();
  ~SignalGate();
  SignalGate(const SignalGate&) = delete;
  SignalGate& operator=(const SignalGate&) = delete;

  const sigset_t* open() const { return &open_; }
  /// The oldest signal not yet taken.
  std::optional<int> take();
  /// Lets in what waits outside, then take(): for places that wait for something else.
  std::optional<int> look();

 private:
  sigset_t open_{};
  sigset_t before_{};
  std::vector<std::pair<int, struct sigaction>> handlers_;
};

}  // namespace trireme::proc
