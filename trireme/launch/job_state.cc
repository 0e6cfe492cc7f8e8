#include "trireme/launch/job_state.h"

#include <signal.h>

#include <algorithm>

namespace trireme::launch {

void JobState::exited(int worker, Exit exit) {
  Worker& w = workers_.at(static_cast<size_t>(worker));
  w.exit = exit;
  w.stopped = stopping();
}

void JobState::confirm(int worker) {
  workers_.at(static_cast<size_t>(worker)).exit.value().victim = false;
}

void JobState::stop(int signal, Clock::time_point now) {
  if (stopping()) return;
  signals_.push_back(signal);
  kill_at_ = now + timing_.grace;
}

void JobState::kill(Clock::time_point now) {
  if (killed_) return;
  kill_at_ = now;
}

bool JobState::interrupt(int signal, Clock::time_point now) {
  if (interrupted_ != 0) {
    if (now - interrupted_at_ >= timing_.impatience) kill(now);
    return false;
  }
  interrupted_ = signal;
  interrupted_at_ = now;
  stop(signal, now);
  return true;
}

std::optional<int> JobState::first_failure(bool victims) const {
  std::optional<int> first;
  for (size_t i = 0; i < workers_.size(); ++i) {
    const Worker& w = workers_[i];
    if (!w.exit || w.exit->success || w.stopped || (w.exit->victim && !victims)) continue;
    if (!first || w.exit->when < workers_[static_cast<size_t>(*first)].exit->when) first = static_cast<int>(i);
  }
  return first;
}

Millis JobState::settle_time(const Exit& exit) const {
  if (!exit.victim) return timing_.settle;
  return exit.gave_up ? timing_.gave_up_settle : timing_.victim_settle;
}

std::optional<Clock::time_point> JobState::verdict_at() const {
  const auto certain = first_failure(false);
  const auto failed = certain ? certain : first_failure(true);
  if (!failed) return std::nullopt;
  const Exit& exit = *workers_[static_cast<size_t>(*failed)].exit;
  return exit.when + settle_time(exit);
}

std::optional<int> JobState::culprit(Clock::time_point now) const {
  const auto at = verdict_at();
  const auto certain = first_failure(false);
  // When no worker is left that could fail, there is nothing to wait for.
  const bool nobody_runs =
      std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.exit.has_value(); });
  const bool nobody_can_fail = nobody_runs && (timing_.whole_job || certain);
  if (!at || (now < *at && !nobody_can_fail && !stopping())) return std::nullopt;
  return certain ? certain : first_failure(true);
}

bool JobState::all_succeeded() const {
  return std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.exit && w.exit->success; });
}

bool JobState::all_finished() const {
  return std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.finished; });
}

bool JobState::was_stopped(int worker) const {
  const Worker& w = workers_.at(static_cast<size_t>(worker));
  return w.stopped || (!w.exit && stopping());
}

std::optional<int> JobState::signal_due(Clock::time_point now) {
  if (!signals_.empty()) {
    const int signal = signals_.front();
    signals_.pop_front();
    return signal;
  }
  if (kill_at_ && !killed_ && now >= *kill_at_) {
    killed_ = true;
    kill_at_ = now;
    return SIGKILL;
  }
  return std::nullopt;
}

bool JobState::given_up(Clock::time_point now) const {
  return killed_ && now >= *kill_at_ + timing_.give_up;
}

Deadline JobState::next() const {
  Deadline next = Deadline::never();
  if (const auto verdict = verdict_at(); verdict && !stopping()) next = Deadline::at(*verdict);
  if (kill_at_) next = earlier(next, Deadline::at(killed_ ? *kill_at_ + timing_.give_up : *kill_at_));
  return next;
}

}  // namespace trireme::launch
