// A thread that no signal is delivered to: signals belong to the program's own loop, not to a library's helper.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <thread>

#include "trireme/core/error.h"

namespace trireme {

/// Starts `run` on a thread with every signal blocked. Throws SystemError that names `what` when there is no thread.
template <typename Run>
std::thread start_quiet_thread(const char* what, Run run) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // a new thread inherits the mask
  const auto restore = [&] { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); };
  try {
    std::thread thread(std::move(run));
    restore();
    return thread;
  } catch (const std::system_error& error) {
    restore();
    throw SystemError(error.code().value(), "cannot start the thread of {}", what);
  }
}

}  // namespace trireme
