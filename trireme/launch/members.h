// The nodes of this job as one of them sees it, from attempt to attempt: carries out what next_step() (membership.h)
// says.
//
//   Members members(request, seat, self.info, std::move(meeting));
//   …                                                        // an attempt with members.meeting()
//   if (auto over = members.find_next(step, outcome, hooks)) …    // the job ends
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/launch/membership.h"
#include "trireme/launch/nodes/meeting.h"
#include "trireme/launch/report/failure_report.h"
#include "trireme/launch/signal_watch.h"

namespace trireme::launch {

class Members {
 public:
  struct Hooks {
    proc::SignalGate& signals;
    const JobLink::Objection& objection;  // while nodes gather
    const SignalWatch::BeforeEnd& away;   // a signal while this node looks for a lost job
  };

  /// Every argument but the meeting must outlive this.
  Members(const Request& request, const Seat& seat, const NodeInfo& self, std::unique_ptr<Meeting> meeting);

  /// False after the job was lost and not found again: then there is no meeting.
  bool there() const { return meeting_ != nullptr; }
  Meeting& meeting() const { return *meeting_; }
  int attempt() const { return attempt_; }
  /// After failures; count_restart() returns the new number.
  int restarts() const { return restarts_; }
  int count_restart() { return ++restarts_; }
  /// An attempt with the same members as the one before has no entry.
  const std::vector<Membership>& by_attempt() const { return by_attempt_; }

  /// Nothing: attempt() and meeting() are those of the next attempt. Else how the job ends. Requires a step that goes
  /// on.
  std::optional<JobOutcome> find_next(Step step, const JobOutcome& why, const Hooks& hooks);

 private:
  JobPast past(const JobOutcome& why) const;
  std::optional<JobOutcome> gather(const JobOutcome& why, const Hooks& hooks);
  std::optional<JobOutcome> rejoin(const JobOutcome& why, const Hooks& hooks);
  JobOutcome not_found(const JobOutcome& why, const Error& error) const;
  void note(const std::string& why);

  const Request& request_;
  const Seat& seat_;
  NodeInfo self_;
  std::unique_ptr<Meeting> meeting_;
  int attempt_ = 0;
  int restarts_ = 0;
  std::set<std::string> addresses_;  // of the members
  std::vector<Membership> by_attempt_;
};

}  // namespace trireme::launch
