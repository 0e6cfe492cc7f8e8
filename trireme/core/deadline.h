// A point in time by which a wait must end. Every wait in Trireme takes one.
//
//   Deadline deadline = Deadline::in(std::chrono::seconds(5));
//   while (!ready()) poll(fds, count, deadline.poll_timeout());
#pragma once

#include <algorithm>
#include <chrono>
#include <climits>

namespace trireme {

class Deadline {
  using Clock = std::chrono::steady_clock;
  using Millis = std::chrono::milliseconds;

 public:
  static Deadline in(Clock::duration wait) { return Deadline(Clock::now() + wait); }
  static Deadline at(Clock::time_point time) { return Deadline(time); }
  static Deadline never() { return Deadline(Clock::time_point::max()); }

  bool is_never() const { return time_ == Clock::time_point::max(); }
  bool passed() const { return !is_never() && Clock::now() >= time_; }
  Clock::time_point time() const { return time_; }

  /// Time left, never negative.
  Millis left() const {
    if (is_never()) return Millis::max();
    return std::max(Millis(0), std::chrono::ceil<Millis>(time_ - Clock::now()));
  }

  /// For poll(2): -1 means for ever.
  int poll_timeout() const {
    return is_never() ? -1 : static_cast<int>(std::min<Millis::rep>(left().count(), INT_MAX));
  }

  friend Deadline earlier(Deadline a, Deadline b) { return a.time_ < b.time_ ? a : b; }

 private:
  explicit Deadline(Clock::time_point time) : time_(time) {}
  Clock::time_point time_;
};

}  // namespace trireme
