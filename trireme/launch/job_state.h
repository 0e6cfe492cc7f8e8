// What a node's launcher knows about its workers and when it must do what: pure state, fed with events and a clock.
//
// Words. A worker has *exited* when its process ended, and is *finished* when nothing it started is left. The *culprit*
// is the first to fail. Since the others often fail within milliseconds because of it, the verdict waits a moment
// (settle) and takes the earliest; a worker that says itself that a peer failed (a *victim*) is only taken when no
// better one shows up. A victim that *gave up* waiting for other ranks gets more time: one of those may still be about
// to end with exit code 0, and then the victim's verdict is certain (see early_ends.h). *Stopping* sends a signal, and
// SIGKILL after the grace; a worker that survives SIGKILL is *given up*.
//
//   JobState state(workers, {.grace = 10s});
//   state.exited(1, {.success = false, .when = event.when});
//   while (auto signal = state.signal_due(Clock::now())) set.signal_all(*signal);
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "trireme/core/clock.h"
#include "trireme/core/deadline.h"

namespace trireme::launch {

class JobState {
 public:
  struct Timing {
    Millis grace{10'000};
    Millis settle{100};
    Millis victim_settle{500};
    Millis gave_up_settle{2'000};
    Millis give_up{2'000};   // after SIGKILL
    Millis impatience{100};  // a second signal sooner than this is part of the first
    bool whole_job = true;   // no worker runs on another node
  };
  struct Exit {
    bool success = true;
    bool victim = false;
    bool gave_up = false;  // a victim that waited for other ranks
    Clock::time_point when;
  };

  JobState(int workers, Timing timing) : workers_(static_cast<size_t>(workers)), timing_(timing) {}

  // --- what happened
  void exited(int worker, Exit exit);
  /// It is known why this victim failed: its verdict need not wait for a better one.
  void confirm(int worker);
  void finished(int worker) { workers_.at(static_cast<size_t>(worker)).finished = true; }
  /// Stop everything: `signal` first, SIGKILL after the grace. A second call while stopping changes nothing.
  void stop(int signal, Clock::time_point now);
  /// Stop waiting: SIGKILL now.
  void kill(Clock::time_point now);
  /// The launcher got a signal. The first stops everything: true. A second one kills, unless it follows at once:
  /// timeout(1) and batch systems signal the launcher and then its group, which is one request.
  bool interrupt(int signal, Clock::time_point now);

  // --- what follows
  /// The local culprit, once it is certain.
  std::optional<int> culprit(Clock::time_point now) const;
  bool all_succeeded() const;
  bool all_finished() const;
  bool stopping() const { return kill_at_.has_value(); }
  /// The first signal that interrupt() was told of, else 0.
  int interrupted() const { return interrupted_; }
  /// A worker that ended after stop() was stopped; one that ended before ended by itself.
  bool was_stopped(int worker) const;
  /// The next signal for all workers, or nothing. Each is returned once.
  std::optional<int> signal_due(Clock::time_point now);
  /// SIGKILL did not help in time.
  bool given_up(Clock::time_point now) const;
  /// When to look again if nothing happens.
  Deadline next() const;

 private:
  struct Worker {
    std::optional<Exit> exit;
    bool finished = false;
    bool stopped = false;
  };
  std::optional<int> first_failure(bool victims) const;
  Millis settle_time(const Exit& exit) const;
  std::optional<Clock::time_point> verdict_at() const;

  std::vector<Worker> workers_;
  Timing timing_;
  std::deque<int> signals_;
  std::optional<Clock::time_point> kill_at_;  // set while stopping
  bool killed_ = false;
  int interrupted_ = 0;
  Clock::time_point interrupted_at_;
};

}  // namespace trireme::launch
