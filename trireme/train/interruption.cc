#include "trireme/train/interruption.h"

#include <signal.h>

#include <vector>

namespace trireme::train {
namespace {

bool ends_the_process(int signal) {
  struct sigaction action {};
  if (::sigaction(signal, nullptr, &action) != 0) return false;
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL;
}

}  // namespace

Interruption::Interruption(const InterruptionOptions& options) {
  std::vector<int> signals;
  for (const int signal : {SIGINT, SIGTERM})
    if (options.enabled && ends_the_process(signal)) signals.push_back(signal);
  if (!signals.empty()) notice_.emplace(signals);
}

void Interruption::obey(int signal) {
  notice_.reset();
  ::raise(signal);
}

}  // namespace trireme::train
