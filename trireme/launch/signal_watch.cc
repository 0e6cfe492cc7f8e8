#include "trireme/launch/signal_watch.h"

#include <fmt/core.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

#include "trireme/core/error.h"
#include "trireme/core/quiet_thread.h"
#include "trireme/launch/report/diagnosis.h"

namespace trireme::launch {
namespace {

// Not through the console: it belongs to the main thread, which may be waiting for another node.
[[noreturn]] void end_early(int signal, const SignalWatch::BeforeEnd& before_end) {
  const std::string words =
      before_end ? before_end(signal) : "the job has not begun, and no worker was started on this node";
  write_all(STDERR_FILENO, fmt::format("trireme: {}: ends here; {}\n", signal_name(signal), words));
  ::_exit(128 + signal);
}

void act_on_signals(int arrived, int stop, const SignalWatch::BeforeEnd& before_end) {
  for (;;) {
    pollfd entries[2] = {{arrived, POLLIN, 0}, {stop, POLLIN, 0}};
    if (::poll(entries, 2, -1) < 0) continue;
    if (entries[1].revents) return;  // what comes now is for the supervisor
    signalfd_siginfo info{};
    if (::read(arrived, &info, sizeof info) != sizeof info) continue;
    if (info.ssi_signo != SIGTSTP) end_early(static_cast<int>(info.ssi_signo), before_end);
    proc::stop_this_process();
  }
}

}  // namespace

std::vector<int> launcher_signals() {
  return {SIGUSR1, SIGUSR2, SIGQUIT, SIGTSTP};
}

SignalWatch::SignalWatch(const proc::SignalGate& gate, BeforeEnd before_end)
    : stop_(make_pipe()), arrived_(::signalfd(-1, &gate.blocked(), SFD_CLOEXEC | SFD_NONBLOCK)) {
  if (!arrived_) throw SystemError(errno, "cannot watch for signals");
  thread_ = start_quiet_thread(
      "the signal watch", [arrived = arrived_.get(), stop = stop_.first.get(), before_end = std::move(before_end)] {
        act_on_signals(arrived, stop, before_end);
      });
}

SignalWatch::~SignalWatch() {
  stop_.second.reset();
  thread_.join();
}

}  // namespace trireme::launch
