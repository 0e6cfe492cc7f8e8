// Warnings that outsiders can provoke: at most one line a second, which says how many were left out before it.
#pragma once

#include <cstdint>
#include <string_view>

#include "trireme/core/clock.h"
#include "trireme/core/deadline.h"
#include "trireme/core/log.h"

namespace trireme {

/// Thread rule: one thread.
class RateLimitedLog {
 public:
  explicit RateLimitedLog(Millis interval = Millis(1000)) : interval_(interval) {}
  ~RateLimitedLog() {
    if (left_out_ > 0) log_warning("[store] {} more such warnings", left_out_);
  }

  void warn(std::string_view message) {
    if (!pause_.passed()) {
      ++left_out_;
      return;
    }
    log_warning("[store] {}{}", message, left_out_ ? fmt::format(" ({} more such warnings before)", left_out_) : "");
    left_out_ = 0;
    pause_ = Deadline::in(interval_);
  }

 private:
  const Millis interval_;
  Deadline pause_ = Deadline::in(Millis(0));
  uint64_t left_out_ = 0;
};

}  // namespace trireme
