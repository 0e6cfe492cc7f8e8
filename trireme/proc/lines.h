// Lines out of bytes: cutting a stream into lines, keeping the last few, and joining the lines of several owners so
// that they never mix.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/clock.h"

namespace trireme::proc {

/// Holds back the unfinished last line of a stream. A carriage return ends a line too (progress bars). An endless line
/// is let go in pieces of kMaxHeld, so memory stays bounded whatever a process prints.
class LineCutter {
 public:
  static constexpr size_t kMaxHeld = 64 * 1024;

  /// Takes bytes and returns what can be passed on now.
  std::string feed(std::string_view bytes);
  /// The held-back rest.
  std::string flush();
  bool holds_something() const { return !held_.empty(); }
  Clock::time_point held_since() const { return since_; }

 private:
  std::string held_;
  Clock::time_point since_;
};

/// Writes to one place from several owners: an owner that writes while another's line is unfinished begins a new line.
class LineJoiner {
 public:
  /// What to write so that `bytes` of `owner` appear with `prefix` before each of their lines.
  std::string add(int owner, std::string_view prefix, std::string_view bytes);
  /// Whether the last line is unfinished.
  bool in_line() const { return line_open_; }

 private:
  int owner_ = -1;
  bool prefix_due_ = true;  // the next byte begins a line
  bool line_open_ = false;  // the last byte was not a newline (it may have been a carriage return)
};

/// The last lines of a worker, for the failure screen.
class Tail {
 public:
  explicit Tail(size_t lines = 30) : limit_(lines) {}
  void add(std::string_view bytes);
  /// Oldest first, without line ends, each fit for printing.
  std::vector<std::string> lines() const;

 private:
  static constexpr size_t kMaxLine = 2000;
  size_t limit_;
  std::deque<std::string> lines_;
  bool line_open_ = false;
};

}  // namespace trireme::proc
