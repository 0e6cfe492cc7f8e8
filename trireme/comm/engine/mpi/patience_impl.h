// How to wait for what MPI offers no event for: look often at first, then let others have the processor.
#pragma once

#include <sched.h>
#include <time.h>

#include <algorithm>

namespace trireme::mpi {

class Patience {
 public:
  /// Whether the wait is long enough for a look at the clock and at the others.
  bool is_long() const { return looks_ > kSpins + kYields; }

  void pause() {
    ++looks_;
    if (looks_ <= kSpins) return;
    if (!is_long()) {
      ::sched_yield();
      return;
    }
    const timespec nap{0, nap_};
    // layers: sleep ok, because MPI makes progress only when it is called and has no event to wait for
    ::nanosleep(&nap, nullptr);
    nap_ = std::min(2 * nap_, kMaxNap);
  }

 private:
  static constexpr int kSpins = 200;
  static constexpr int kYields = 200;
  static constexpr long kMaxNap = 1'000'000;  // 1 ms

  int looks_ = 0;
  long nap_ = 20'000;
};

}  // namespace trireme::mpi
