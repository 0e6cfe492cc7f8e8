#include "trireme/proc/console.h"

#include <fmt/core.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace trireme::proc {

Console::Console(int out_fd, int err_fd) : out_{out_fd, {}}, err_{err_fd, {}}, colour_(::isatty(err_fd) == 1) {}

void Console::write(int owner, bool to_stderr, std::string_view prefix, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  queue(to_stderr ? err_ : out_, joiner_.add(owner, prefix, bytes));
}

void Console::say(std::string_view line) {
  write(kLauncher, true, "", std::string(line) + "\n");
}

void Console::queue(Sink& sink, const std::string& text) {
  if (sink.broken || text.empty()) return;
  if (sink.held.size() + text.size() > kMaxHeld) {
    sink.dropped += text.size();
    return;
  }
  if (sink.dropped > 0) {
    sink.held +=
        fmt::format("\n... {} bytes not shown: the terminal is too slow; the log files have them ...\n", sink.dropped);
    sink.dropped = 0;
  }
  sink.held += text;
  flush_sink(sink);
}

// Writes only while poll says there is room, and no more than a pipe takes without blocking.
bool Console::flush_sink(Sink& sink) {
  size_t written = 0;
  while (written < sink.held.size() && !sink.broken) {
    pollfd entry{sink.fd, POLLOUT, 0};
    if (::poll(&entry, 1, 0) != 1) break;
    const size_t size = std::min<size_t>(sink.held.size() - written, PIPE_BUF);
    const ssize_t n = ::write(sink.fd, sink.held.data() + written, size);
    if (n > 0)
      written += static_cast<size_t>(n);
    else if (n < 0 && errno != EINTR && errno != EAGAIN)
      sink.broken = true;  // the reader is gone; the job goes on
    else
      break;
  }
  sink.held.erase(0, sink.broken ? std::string::npos : written);
  return sink.held.empty();
}

bool Console::flush() {
  const std::lock_guard lock(mutex_);
  const bool out_done = flush_sink(out_);
  return flush_sink(err_) && out_done;
}

void Console::drain(Deadline deadline) {
  while (!flush() && !deadline.passed()) wait_for_room(deadline);
}

void Console::wait_for_room(Deadline deadline) {
  pollfd full[] = {{-1, POLLOUT, 0}, {-1, POLLOUT, 0}};
  {
    const std::lock_guard lock(mutex_);
    if (!out_.held.empty()) full[0].fd = out_.fd;
    if (!err_.held.empty()) full[1].fd = err_.fd;
  }
  ::poll(full, 2, deadline.poll_timeout());
}

}  // namespace trireme::proc
