#include "trireme/proc/console.h"

#include <fmt/core.h>
#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace trireme::proc {
namespace {

constexpr const char* kLineStart = "\r";
constexpr const char* kEraseToEndOfLine = "\033[K";
constexpr size_t kUnknownTerminal = 80;

bool is_same_terminal(int a, int b) {
  struct stat first {
  }, second{};
  return ::isatty(a) == 1 && ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && S_ISCHR(second.st_mode) &&
         first.st_rdev == second.st_rdev;
}

// In the background, a line that is drawn again and again would disturb whoever types.
bool in_foreground(int fd) {
  const pid_t group = ::tcgetpgrp(fd);
  return group == -1 || group == ::getpgrp();  // -1: not the terminal of this session
}

}  // namespace

Console::Console(int out_fd, int err_fd)
    : out_{out_fd, {}},
      err_{err_fd, {}},
      on_terminal_(::isatty(err_fd) == 1),
      one_terminal_(is_same_terminal(out_fd, err_fd)) {}

void Console::write(int owner, bool to_stderr, std::string_view prefix, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  const bool with_status = to_stderr || one_terminal_;
  std::string text = joiner_.add(owner, prefix, bytes);
  if (with_status && !text.empty() && std::exchange(status_drawn_, false))
    text = std::string(kLineStart) + kEraseToEndOfLine + text;
  queue(with_status ? err_ : out_, text);  // on one terminal in one order
}

void Console::say(std::string_view line) {
  write(kLauncher, true, "", std::string(line) + "\n");
}

void Console::say_between_lines(const std::string& line) {
  const std::lock_guard lock(mutex_);
  if (!joiner_.in_line()) queue(err_, joiner_.add(kLauncher, "", line + "\n"));
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
  const bool err_done = flush_sink(err_);
  if (!status_drawn_ && !status_.empty()) draw_status();
  return err_done && out_done;
}

size_t Console::columns() {
  const std::lock_guard lock(mutex_);
  winsize size{};
  return ::ioctl(err_.fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUnknownTerminal;
}

void Console::show_status(std::string line) {
  const std::lock_guard lock(mutex_);
  if (!on_terminal_ || (line == status_ && status_drawn_)) return;
  status_ = std::move(line);
  if (!status_.empty())
    draw_status();
  else if (std::exchange(status_drawn_, false))
    queue(err_, std::string(kLineStart) + kEraseToEndOfLine);
}

// In one write, so that nothing flickers. A terminal that is too slow gets it later.
void Console::draw_status() {
  if (joiner_.in_line() || !err_.held.empty() || !in_foreground(err_.fd)) return;
  queue(err_, kLineStart + status_ + kEraseToEndOfLine);
  status_drawn_ = true;
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
