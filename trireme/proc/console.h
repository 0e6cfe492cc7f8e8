// The launcher's own standard output and error, shared by the launcher's words and the workers'. A slow or closed
// terminal never holds up the supervision of the job: what cannot be written at once is buffered, and beyond kMaxHeld
// left out.
#pragma once

#include <mutex>
#include <string>
#include <string_view>

#include "trireme/core/deadline.h"
#include "trireme/core/thread_annotations.h"
#include "trireme/proc/lines.h"

namespace trireme::proc {

/// All methods may be called from several threads: the store's server logs too.
class Console {
 public:
  static constexpr int kLauncher = -1;
  static constexpr size_t kMaxHeld = 4u << 20;

  Console(int out_fd = 1, int err_fd = 2);

  /// Queues and tries to write. `owner` keeps lines of different writers apart.
  void write(int owner, bool to_stderr, std::string_view prefix, std::string_view bytes);
  /// A line of the launcher's own, on standard error.
  void say(std::string_view line);

  /// Writes what can be written now. True when nothing is held.
  bool flush();
  /// Writes the rest, for at most `deadline`.
  void drain(Deadline deadline);
  bool colour() const { return colour_; }

 private:
  struct Sink {
    int fd;
    std::string held;
    size_t dropped = 0;
    bool broken = false;
  };
  static void queue(Sink& sink, const std::string& text);
  static bool flush_sink(Sink& sink);
  void wait_for_room(Deadline deadline);

  Mutex mutex_;
  Sink out_ TRIREME_GUARDED_BY(mutex_);
  Sink err_ TRIREME_GUARDED_BY(mutex_);
  LineJoiner joiner_ TRIREME_GUARDED_BY(mutex_);
  const bool colour_;
};

}  // namespace trireme::proc
