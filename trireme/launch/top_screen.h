// The terminal that `trireme top` draws on: the alternate screen, without a cursor, until the end of this object.
//
//   TopScreen screen;
//   do screen.draw(top_lines(job, screen.size(), now));
//   while (screen.wait(Deadline::in(1s)));
#pragma once

#include <termios.h>

#include <optional>
#include <string>
#include <vector>

#include "trireme/core/deadline.h"
#include "trireme/launch/top.h"
#include "trireme/proc/signals.h"

namespace trireme::launch {

/// One at a time, made before any thread.
class TopScreen {
 public:
  TopScreen();
  ~TopScreen();
  TopScreen(const TopScreen&) = delete;
  TopScreen& operator=(const TopScreen&) = delete;

  TopSize size() const;
  /// Overwrites what is there, in one write, so that nothing flickers.
  void draw(const std::vector<std::string>& lines);
  /// Waits until the deadline, or until the terminal's size changes. False: q, Ctrl-C or a signal ends the program.
  bool wait(Deadline deadline);

 private:
  bool asked_to_leave();

  proc::SignalGate signals_;
  std::optional<termios> before_;  // settings of the keyboard; empty without one
};

}  // namespace trireme::launch
