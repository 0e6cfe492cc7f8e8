// Signals to a launcher: which it takes, and what they do while there is no worker to hand them to.
//
//   proc::SignalGate signals(launcher_signals());
//   {
//     const SignalWatch watch(signals);
//     …                                  // looks up names, waits for the other nodes
//   }
//   …                                    // the supervisor takes the signals from here on
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/core/fd.h"
#include "trireme/proc/signals.h"

namespace trireme::launch {

/// Besides those that end every program of ours: SIGUSR1, SIGUSR2 and SIGQUIT are for the workers (Slurm's --signal),
/// SIGTSTP (Ctrl-Z) stops them together with the launcher.
std::vector<int> launcher_signals();

/// While one of these exists, a signal that the gate keeps out ends this process with one line that says that no job
/// has begun, and the exit code 128 + signal. SIGTSTP stops it. Signals that come after it are the gate's again.
/// `before_end` is called first, on a thread of the watch; it returns what to say instead.
class SignalWatch {
 public:
  using BeforeEnd = std::function<std::string(int signal)>;
  explicit SignalWatch(const proc::SignalGate& gate, BeforeEnd before_end = {});
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  FdPair stop_;
  UniqueFd arrived_;
  std::thread thread_;
};

}  // namespace trireme::launch
