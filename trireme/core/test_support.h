// For the tests of every module: what was refused, what was logged, and what comes true.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/deadline.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/thread_annotations.h"

namespace trireme {

/// The message of the Error that `action` throws.
template <typename Error = UsageError, typename Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

/// While it lives, what any thread logs comes here instead: "warning: text".
class CaughtLog {
 public:
  CaughtLog() {
    before_ = set_log_sink([this](LogLevel level, std::string_view text) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(fmt::format("{}: {}", to_string(level), text));
    });
  }
  ~CaughtLog() { set_log_sink(before_); }
  CaughtLog(const CaughtLog&) = delete;
  CaughtLog& operator=(const CaughtLog&) = delete;

  std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  /// Of the lines that contain `part`.
  size_t count(std::string_view part) const {
    const std::lock_guard lock(mutex_);
    return static_cast<size_t>(std::count_if(
        lines_.begin(), lines_.end(), [&](const std::string& line) { return line.find(part) != std::string::npos; }));
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::string> lines_ TRIREME_GUARDED_BY(mutex_);
  LogSink before_;
};

/// Whether `condition` comes true before the deadline; looks every few milliseconds.
template <typename Condition>
bool eventually(Condition condition, Deadline deadline = Deadline::in(std::chrono::seconds(20))) {
  while (!condition()) {
    if (deadline.passed()) return false;
    ::poll(nullptr, 0, 2);  // layers: sleep ok, because `condition` may be about anything
  }
  return true;
}

/// Like refusal(), and the test fails when nothing is thrown.
template <typename Error, typename Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace trireme
