// How long a job waits before it is restarted. The first restart is immediate; while the job keeps failing soon after
// its start, each wait is twice as long as the one before it, up to a limit. An attempt that lived long starts over.
//
//   RestartDelay delay;
//   delay.next(lived);      // 0 s, 1 s, 2 s, 4 s … 30 s, as long as `lived` is short
//
// Pure: a value, no clock.
#pragma once

#include "trireme/core/clock.h"

namespace trireme::launch {

class RestartDelay {
 public:
  static constexpr Millis kMax{30'000};
  static constexpr Millis kLongLife{60'000};

  /// Before the restart of an attempt that lived so long.
  Millis next(Clock::duration lived) {
    if (lived >= kLongLife) next_ = Millis(0);
    const Millis now = next_;
    next_ = now == Millis(0) ? Millis(1000) : now * 2 < kMax ? now * 2 : kMax;
    return now;
  }

 private:
  Millis next_{0};
};

}  // namespace trireme::launch
