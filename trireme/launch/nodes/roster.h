// The list of nodes: every node publishes its introduction, and the coordinator the list of those that take part. A job
// whose nodes change has one list after the other, in numbered rounds.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/launch/membership.h"
#include "trireme/launch/nodes/introduction.h"
#include "trireme/launch/nodes/job_link.h"
#include "trireme/launch/nodes/seat.h"
#include "trireme/store/store.h"

namespace trireme::launch {

struct Roster {
  std::vector<Introduction> nodes = {};
  int attempt = 0;  // at the job: that of these nodes
  int restarts = 0;
  int max_restart = 0;                  // the coordinator's options count
  ElasticRules rules = {};              // too
  std::optional<JobOutcome> over = {};  // there is no such attempt: how the job ends instead
};

void publish_roster(Store& store, int round, const Roster& roster);
/// The last round with a list; -1: none yet.
int last_round(Store& store);
/// The list of a round, if it comes before the deadline.
std::optional<Roster> roster_within(Store& store, int round, Deadline deadline);
/// Waits for the list of a round. PeerError with the missing nodes when the deadline passes. An objection is an outcome
/// in place of the list (Roster::over).
Roster read_roster(Store& store, const Seat& seat, int round, Deadline deadline, const JobLink::Objection& objection);

/// A wait for nodes is reported after so long, then every kReportEvery.
inline constexpr Millis kFirstReport{1'500};
inline constexpr Millis kReportEvery{10'000};

/// How many nodes are here, which are missing, and what to look at.
std::string missing_text(Store& store, const Seat& seat);

/// A node that cannot join leaves the reason for node 0, which shows it while it waits (gather).
void tell_refusal(Store& store, const std::string& host, const std::string& reason);
void show_refusals(Store& store);

/// Calls `attempt` with ever new short deadlines until it succeeds or `deadline` passes; after each failure it logs
/// `waiting(error)`. A PeerError before its time was up is a refusal, not lateness, and goes through. The first attempt
/// gets `first`.
template <typename Attempt, typename Waiting>
auto patiently(Deadline deadline, Attempt attempt, Waiting waiting, Millis first = kReportEvery) {
  for (Millis patience = first;; patience = kReportEvery) {
    const Deadline slice = earlier(deadline, Deadline::in(patience));
    try {
      return attempt(slice);
    } catch (const PeerError& error) {
      if (!slice.passed()) throw;
      if (deadline.passed()) throw PeerError("{}; gave up after --join_timeout", waiting(error));
      log_info("{}", waiting(error));
    }
  }
}

}  // namespace trireme::launch
