#include "trireme/comm/engine/shm/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace trireme::comm::shm {

void futex_wait(const std::atomic<uint32_t>& word, uint32_t seen, Millis limit) {
  timespec time{};
  time.tv_sec = static_cast<time_t>(limit.count() / 1000);
  time.tv_nsec = static_cast<long>(limit.count() % 1000 * 1000000);
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void futex_wake_all(const std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void relax() {
#if defined(__x86_64__)
  asm volatile("pause");
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace trireme::comm::shm
