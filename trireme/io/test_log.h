#pragma once

#include <chrono>
#include <future>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/log.h"

namespace trireme::io {

/// What is logged while it lives, and a wait for the first line.
class LogLines {
 public:
  ~LogLines() { set_log_sink(before_); }
  std::vector<std::string> all() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  bool wait() { return first_.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready; }

 private:
  void add(std::string_view line) {
    const std::lock_guard lock(mutex_);
    lines_.emplace_back(line);
    if (lines_.size() == 1) first_.set_value();
  }
  std::mutex mutex_;
  std::vector<std::string> lines_;
  std::promise<void> first_;
  const LogSink before_ = set_log_sink([this](LogLevel, std::string_view text) { add(text); });
};

}  // namespace trireme::io
