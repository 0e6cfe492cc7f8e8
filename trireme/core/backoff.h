// The pauses between attempts, each twice as long as the one before it.
//
//   for (Backoff backoff(Millis{20}, Millis{500}); !connected(); backoff.pause(deadline))
//     if (deadline.passed()) throw …;
#pragma once

#include <poll.h>

#include <algorithm>

#include "trireme/core/clock.h"
#include "trireme/core/deadline.h"

namespace trireme {

class Backoff {
 public:
  Backoff(Millis first, Millis longest) : next_(first), longest_(longest) {}

  /// Rests, but not beyond the deadline.
  void pause(Deadline deadline) {
    // layers: sleep ok, because nothing tells a client that the server it misses has come
    ::poll(nullptr, 0, earlier(deadline, Deadline::in(next_)).poll_timeout());
    next_ = std::min(2 * next_, longest_);
  }

 private:
  Millis next_, longest_;
};

}  // namespace trireme
