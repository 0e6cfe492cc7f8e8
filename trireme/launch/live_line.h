// The line at the bottom of the launcher's terminal that says how far the job is. Output of the workers scrolls above it.
//
//   LiveLine line(console, request);
//   monitor.on_look = [&](const JobView& job) { line.show(job); };
//   line.end();                                            // before the last words of the job
//
// Where standard error is not a terminal, --progress on writes a line every 10 s instead. A launcher that --ssh has started
// sends the line to the terminal, which takes it out of the launcher's output (RelayedLine). Thread-safe.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "trireme/core/deadline.h"
#include "trireme/core/thread_annotations.h"
#include "trireme/launch/live/page_json.h"
#include "trireme/launch/options/request.h"
#include "trireme/proc/console.h"

namespace trireme::launch {

class LiveLine {
 public:
  LiveLine(proc::Console& console, const Request& request);
  ~LiveLine() { end(); }
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  void show(const JobView& job);
  void show(const std::string& text);
  /// Clears it. Later calls of show() do nothing.
  void end();

  /// Whether it shows anything.
  static bool is_wanted(const Request& request, bool on_terminal);

 private:
  void say_now_and_then(const std::string& text) TRIREME_REQUIRES(mutex_);

  proc::Console& console_;
  const bool on_terminal_;
  const bool relays_;
  Mutex mutex_;
  bool over_ TRIREME_GUARDED_BY(mutex_);
  Deadline next_ TRIREME_GUARDED_BY(mutex_) = Deadline::in(Millis(0));
  std::string said_ TRIREME_GUARDED_BY(mutex_);
};

/// The line that a launcher relays, among the other bytes of its standard error.
class RelayedLine {
 public:
  static constexpr char kMark = '\x1e';  // before the line; it is of its own

  /// The other bytes. `show` is called for each relayed line.
  std::string take_out(std::string_view bytes, const std::function<void(const std::string&)>& show);

 private:
  static constexpr size_t kMaxLine = 4096;
  std::string held_;  // the beginning of one
  bool line_start_ = true;
};

}  // namespace trireme::launch
