// The launcher's own standard output and error, shared by the launcher's words and the workers'. A slow or closed
// terminal never holds up the supervision of the job: what cannot be written at once is buffered, and beyond kMaxHeld
// left out.
//
// On a terminal one more line may stand below all others: the status. Text of anybody else erases it, and the next
// flush() draws it again below.
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

  /// The same, or nothing while the last line is unfinished.
  void say_between_lines(const std::string& line);

  /// Writes what can be written now. True when nothing is held.
  bool flush();
  /// Writes the rest, for at most `deadline`.
  void drain(Deadline deadline);
  bool colour() const { return on_terminal_; }

  /// Whether standard error is a terminal.
  bool on_terminal() const { return on_terminal_; }
  /// Of that terminal.
  size_t columns();
  /// A line without its end, shorter than a line of the terminal; "" takes it away. It is not drawn while the last line
  /// is unfinished, or while this process is in the background. Elsewhere than on a terminal nothing happens.
  void show_status(std::string line);

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
  void draw_status() TRIREME_REQUIRES(mutex_);

  Mutex mutex_;
  Sink out_ TRIREME_GUARDED_BY(mutex_);
  Sink err_ TRIREME_GUARDED_BY(mutex_);
  LineJoiner joiner_ TRIREME_GUARDED_BY(mutex_);
  const bool on_terminal_;   // standard error
  const bool one_terminal_;  // standard output is the same
  std::string status_ TRIREME_GUARDED_BY(mutex_);
  bool status_drawn_ TRIREME_GUARDED_BY(mutex_) = false;
};

}  // namespace trireme::proc
