#include "trireme/core/preemption.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#include <array>
#include <atomic>
#include <mutex>

#include "trireme/core/error.h"
#include "trireme/core/thread_annotations.h"

namespace trireme {
namespace {

Mutex g_mutex;

// What the handler of one signal needs. It reads `before` only while it is installed, or while another handler that
// has come on top calls it; so `before` is written first and never cleared.
struct Watch {
  std::atomic<uint64_t> received = 0;
  std::atomic<int64_t> first_at = 0;  // when the first came, as now_ns() says; 0: none has
  struct sigaction before {};
  int users TRIREME_GUARDED_BY(g_mutex) = 0;
};

std::array<Watch, NSIG> g_watches;
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free,
              "the handler may not wait for a lock");

// A second signal sooner than this is part of the first, as in the launcher: timeout(1) sends each twice, to the
// process and to its group. A batch system sends SIGTERM to every process of a job, and the launchers pass theirs on,
// from node to node too; the process may be saving by then.
int64_t repeat_ns(int number) {
  return number == SIGTERM ? 3'000'000'000 : 100'000'000;
}

Watch& watch_of(int number) {
  return g_watches[static_cast<size_t>(number)];
}

uint64_t count_of(int number) {
  return watch_of(number).received.load(std::memory_order_relaxed);
}

bool is_default(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL;
}

// For the handler: clock_gettime() may be called there.
int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Whether the signal has come before, and this one is not part of that. Two threads may ask at once.
bool is_asked_again(Watch& watch, int number) {
  const int64_t now = now_ns();
  int64_t first = 0;
  return !watch.first_at.compare_exchange_strong(first, now) && now - first >= repeat_ns(number);
}

// As if it had never been caught; the signal waits until the handler has returned.
void end_by(int number) {
  ::signal(number, SIG_DFL);
  ::raise(number);
}

extern "C" void trireme_note_preemption(int number, siginfo_t* info, void* context) {
  const int saved = errno;
  Watch& watch = watch_of(number);
  watch.received.fetch_add(1, std::memory_order_relaxed);
  const bool again = is_asked_again(watch, number);
  if ((number == SIGINT || number == SIGTERM) && again && is_default(watch.before)) end_by(number);
  if ((watch.before.sa_flags & SA_SIGINFO) != 0)
    watch.before.sa_sigaction(number, info, context);
  else if (watch.before.sa_handler != SIG_DFL && watch.before.sa_handler != SIG_IGN)
    watch.before.sa_handler(number);
  errno = saved;
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == trireme_note_preemption;
}

bool is_ignored(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_IGN;
}

struct sigaction our_action() {
  struct sigaction action {};
  action.sa_sigaction = trireme_note_preemption;
  action.sa_flags = SA_SIGINFO | SA_RESTART;  // reads and writes of the program go on
  sigfillset(&action.sa_mask);
  return action;
}

void install(int number) TRIREME_REQUIRES(g_mutex) {
  struct sigaction now {};
  const bool known = number > 0 && number < NSIG && ::sigaction(number, nullptr, &now) == 0;
  if (!known || number == SIGKILL || number == SIGSTOP)
    throw UsageError("Checkpoint: signal {} cannot announce a preemption; take SIGTERM ({}) or SIGUSR1 ({})", number,
                     SIGTERM, SIGUSR1);
  Watch& watch = watch_of(number);
  if (watch.users++ > 0 || is_ignored(now) || is_ours(now)) return;
  watch.before = now;
  watch.received = 0;  // this is the first user, so no other has read it
  watch.first_at = 0;
  const struct sigaction ours = our_action();
  ::sigaction(number, &ours, nullptr);
}

void uninstall(int number) TRIREME_REQUIRES(g_mutex) {
  Watch& watch = watch_of(number);
  if (--watch.users > 0) return;
  struct sigaction now {};
  if (::sigaction(number, nullptr, &now) == 0 && is_ours(now)) ::sigaction(number, &watch.before, nullptr);
}

}  // namespace

PreemptionNotice::PreemptionNotice(const std::vector<int>& signals) {
  const std::lock_guard lock(g_mutex);
  try {
    for (const int number : signals) {
      install(number);
      signals_.push_back(number);
    }
  } catch (...) {
    for (const int number : signals_) uninstall(number);
    throw;
  }
  for (const int number : signals_) before_.push_back(count_of(number));
}

PreemptionNotice::~PreemptionNotice() {
  const std::lock_guard lock(g_mutex);
  for (const int number : signals_) uninstall(number);
}

int PreemptionNotice::signal() const {
  for (size_t i = 0; i < signals_.size(); ++i)
    if (count_of(signals_[i]) != before_[i]) return signals_[i];
  return 0;
}

}  // namespace trireme
