#include "trireme/core/broken_pipe.h"

#include <time.h>

namespace trireme {
namespace {

sigset_t only_sigpipe() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGPIPE);
  return set;
}

bool is_pending() {
  sigset_t pending;
  ::sigpending(&pending);
  return ::sigismember(&pending, SIGPIPE) == 1;
}

}  // namespace

NoBrokenPipe::NoBrokenPipe() : pending_before_(is_pending()) {
  const sigset_t set = only_sigpipe();
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
}

NoBrokenPipe::~NoBrokenPipe() {
  const sigset_t set = only_sigpipe();
  const timespec at_once{};
  if (!pending_before_ && is_pending()) ::sigtimedwait(&set, nullptr, &at_once);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace trireme
