#include "trireme/proc/signals.h"

#include <poll.h>

#include <atomic>
#include <utility>

namespace trireme::proc {
namespace {

constexpr int kEnding[] = {SIGINT, SIGTERM, SIGHUP};
constexpr unsigned kSlots = 8;
std::atomic<int> g_arrived[kSlots];  // a ring: a handler may do no more than this
std::atomic<unsigned> g_written{0};
unsigned g_read = 0;

void remember(int number) {
  g_arrived[g_written.fetch_add(1) % kSlots] = number;
}

}  // namespace

SignalGate::SignalGate() {
  sigset_t blocked;
  ::sigemptyset(&blocked);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    struct sigaction action {
    }, before{};
    ::sigaction(number, nullptr, &before);
    if (number == SIGHUP && before.sa_handler == SIG_IGN) continue;
    handlers_.emplace_back(number, before);
    action.sa_handler = number == SIGPIPE ? SIG_IGN : remember;
    ::sigaction(number, &action, nullptr);
    if (number != SIGPIPE) ::sigaddset(&blocked, number);
  }
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  open_ = before_;
  for (const int number : kEnding) ::sigdelset(&open_, number);
}

SignalGate::~SignalGate() {
  for (const auto& [number, action] : handlers_) ::sigaction(number, &action, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> SignalGate::take() {
  if (g_read == g_written.load()) return std::nullopt;
  return g_arrived[g_read++ % kSlots].load();
}

std::optional<int> SignalGate::look() {
  const timespec at_once{};
  // layers: sleep ok, because it does not: it only lets in the signals that wait
  ::ppoll(nullptr, 0, &at_once, &open_);
  return take();
}

}  // namespace trireme::proc
