// For tests: collects the log while it exists.
#pragma once

#include <functional>
#include <mutex>
#include <string>

#include "trireme/core/log.h"

namespace trireme::launch {

class LogLines {
 public:
  /// `on_line` is called for each line, on the thread that logs it.
  explicit LogLines(std::function<void(const std::string&)> on_line = {})
      : before_(set_log_sink([this, on_line](LogLevel level, std::string_view text) {
          const std::string line = (level == LogLevel::warning ? "warning: " : "info: ") + std::string(text) + "\n";
          if (on_line) on_line(line);
          const std::lock_guard lock(mutex_);
          text_ += line;
        })) {}
  ~LogLines() { set_log_sink(before_); }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;
  std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  std::mutex mutex_;
  std::string text_;
  LogSink before_;
};

}  // namespace trireme::launch
