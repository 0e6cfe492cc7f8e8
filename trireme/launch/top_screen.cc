#include "trireme/launch/top_screen.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "trireme/core/clock.h"
#include "trireme/core/fd.h"

namespace trireme::launch {
namespace {

constexpr const char* kEnter = "\033[?1049h\033[?25l";
constexpr const char* kLeave = "\033[?25h\033[?1049l";
constexpr const char* kHome = "\033[H";
constexpr const char* kEraseToEndOfLine = "\033[K";
constexpr const char* kEraseBelow = "\033[J";
constexpr TopSize kUnknownTerminal{.columns = 79, .rows = 24};
constexpr char kControlC = 3;

}  // namespace

TopScreen::TopScreen() : signals_({SIGWINCH}) {
  termios keyboard{};
  if (::tcgetattr(STDIN_FILENO, &keyboard) == 0) {
    before_ = keyboard;
    keyboard.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
    keyboard.c_cc[VMIN] = 1;
    keyboard.c_cc[VTIME] = 0;
    ::tcsetattr(STDIN_FILENO, TCSANOW, &keyboard);
  }
  write_all(STDOUT_FILENO, kEnter);
}

TopScreen::~TopScreen() {
  if (before_) ::tcsetattr(STDIN_FILENO, TCSANOW, &*before_);
  write_all(STDOUT_FILENO, kLeave);  // last: when the shell's screen is back, its keyboard is too
}

TopSize TopScreen::size() const {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return kUnknownTerminal;
  return {.columns = size.ws_col - 1u, .rows = size.ws_row};  // in the last column a terminal is about to wrap
}

void TopScreen::draw(const std::vector<std::string>& lines) {
  std::string text = kHome;
  for (size_t i = 0; i < lines.size(); ++i) text += (i == 0 ? "" : "\r\n") + lines[i] + kEraseToEndOfLine;
  write_all(STDOUT_FILENO, text + kEraseBelow);
}

bool TopScreen::wait(Deadline deadline) {
  pollfd keyboard{before_ ? STDIN_FILENO : -1, POLLIN, 0};
  do {  // at least once, so that keys are read after the deadline too
    const Millis left = deadline.left();
    const timespec timeout{static_cast<time_t>(left.count() / 1000),
                           static_cast<long>(left.count() % 1000) * 1'000'000};
    const bool typed = ::ppoll(&keyboard, 1, &timeout, signals_.open()) == 1;
    if (typed && asked_to_leave()) return false;
    while (const auto signal = signals_.take()) {
      if (proc::asks_to_end(*signal)) return false;
      deadline = Deadline::in(Millis(0));  // a new size
    }
  } while (!deadline.passed());
  return true;
}

bool TopScreen::asked_to_leave() {
  char keys[64];
  const ssize_t count = ::read(STDIN_FILENO, keys, sizeof keys);
  if (count <= 0) return true;  // the terminal is gone
  return std::any_of(keys, keys + count, [](char key) { return key == 'q' || key == kControlC; });
}

}  // namespace trireme::launch
