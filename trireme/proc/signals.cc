#include "trireme/proc/signals.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

#include "trireme/core/clock.h"

namespace trireme::proc {
namespace {

constexpr int kEnding[] = {SIGINT, SIGTERM, SIGHUP};
constexpr unsigned kSlots = 64;
std::atomic<int> g_arrived[kSlots];  // a ring: a handler may do no more than this
std::atomic<unsigned> g_written{0};
unsigned g_read = 0;

void remember(int number) {
  g_arrived[g_written.fetch_add(1) % kSlots] = number;
}

struct sigaction set_handler(int number, void (*handler)(int)) {
  struct sigaction action {
  }, before{};
  action.sa_handler = handler;
  ::sigaction(number, &action, &before);
  return before;
}

// A choice of whoever started this process that stays.
bool stays_ignored(int number) {
  struct sigaction now {};
  ::sigaction(number, nullptr, &now);
  return (number == SIGHUP || number == SIGTSTP) && now.sa_handler == SIG_IGN;
}

}  // namespace

bool asks_to_end(int number) {
  return std::find(std::begin(kEnding), std::end(kEnding), number) != std::end(kEnding);
}

SignalGate::SignalGate(const std::vector<int>& more) {
  std::vector<int> numbers(std::begin(kEnding), std::end(kEnding));
  numbers.insert(numbers.end(), more.begin(), more.end());
  ::sigemptyset(&blocked_);
  handlers_.emplace_back(SIGPIPE, set_handler(SIGPIPE, SIG_IGN));
  for (const int number : numbers) {
    if (stays_ignored(number)) continue;
    handlers_.emplace_back(number, set_handler(number, remember));
    ::sigaddset(&blocked_, number);
  }
  ::pthread_sigmask(SIG_BLOCK, &blocked_, &before_);
  open_ = before_;
  for (const int number : numbers) ::sigdelset(&open_, number);
}

SignalGate::~SignalGate() {
  for (const auto& [number, action] : handlers_) ::sigaction(number, &action, nullptr);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> SignalGate::take() {
  if (g_read == g_written.load()) return std::nullopt;
  return g_arrived[g_read++ % kSlots].load();
}

std::optional<int> SignalGate::look(Deadline deadline) {
  if (const auto earlier = take()) return earlier;
  const Millis left = deadline.left();
  const timespec timeout{static_cast<time_t>(left.count() / 1000), static_cast<long>(left.count() % 1000) * 1'000'000};
  // layers: sleep ok, because a signal ends it
  ::ppoll(nullptr, 0, deadline.is_never() ? nullptr : &timeout, &open_);
  return take();
}

void stop_this_process() {
  const struct sigaction before = set_handler(SIGTSTP, SIG_DFL);
  sigset_t stop, mask;
  ::sigemptyset(&stop);
  ::sigaddset(&stop, SIGTSTP);
  ::raise(SIGTSTP);  // waits until it is unblocked, or comes at once
  ::pthread_sigmask(SIG_UNBLOCK, &stop, &mask);
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  ::sigaction(SIGTSTP, &before, nullptr);
}

}  // namespace trireme::proc
