#include "trireme/io/slow_save.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "trireme/core/log.h"
#include "trireme/core/memory.h"
#include "trireme/core/quiet_thread.h"

namespace trireme::io {
namespace {

std::string bytes_of(uint64_t bytes) {
  return bytes_text(static_cast<double>(bytes));
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

SlowSave::SlowSave(std::string what, uint64_t total, Millis patience)
    : what_(std::move(what)),
      patience_(patience),
      total_(total),
      thread_(start_quiet_thread("the report of a slow save", [this] { report_if_slow(); })) {}

SlowSave::~SlowSave() {
  stop();
}

void SlowSave::expect(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  total_ += bytes;
}

void SlowSave::wrote(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  written_ += bytes;
}

void SlowSave::report_if_slow() {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, patience_, [this]() TRIREME_REQUIRES(mutex_) { return over_; })) return;
  reported_ = true;
  const uint64_t written = written_, total = total_;
  lock.unlock();
  const std::string part = written > 0 ? fmt::format("{} of ", bytes_of(written)) : "";
  log_info("[checkpoint] {} is being saved: {}{} after {:.1f} s", what_, part,
           total > 0 ? bytes_of(total) : "an unknown size", seconds_since(started_));
}

void SlowSave::stop() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void SlowSave::done() {
  stop();
  const std::lock_guard lock(mutex_);
  if (reported_)
    log_info("[checkpoint] {} is saved: {} in {:.1f} s", what_, bytes_of(std::max(total_, written_)),
             seconds_since(started_));
}

}  // namespace trireme::io
