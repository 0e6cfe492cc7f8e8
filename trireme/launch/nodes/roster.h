// The list of nodes: every node publishes its introduction, and the coordinator the list of all.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/launch/nodes/introduction.h"
#include "trireme/launch/nodes/job_link.h"
#include "trireme/launch/nodes/seat.h"
#include "trireme/store/store.h"

namespace trireme::launch {

struct Roster {
  std::vector<Introduction> nodes = {};
  int max_restart = 0;  // the coordinator's option counts
};

/// Takes a number: the wanted one, or the lowest free one from 1 on. Throws UsageError when it is taken or none is
/// left.
int claim_number(Store& store, const std::string& name, std::optional<int> wanted, int nodes);

/// The coordinator: waits until all nodes are there, naming those that are missing, and publishes the list. A node that
/// leaves before that (see `departures`) may join again.
void publish_roster(Store& store, const Seat& seat, int max_restart, LostNodes& departures, Deadline deadline);
/// Every node: waits for the list. PeerError with the missing nodes when the deadline passes.
Roster read_roster(Store& store, const Seat& seat, Deadline deadline);

/// Key of node `number`'s introduction.
std::string introduction_key(int number);

/// Calls `attempt` with ever new short deadlines until it succeeds or `deadline` passes; after each failure it logs
/// `waiting(error)`. A PeerError before its time was up is a refusal, not lateness, and goes through.
template <typename Attempt, typename Waiting>
auto patiently(Deadline deadline, Attempt attempt, Waiting waiting) {
  constexpr auto kReportEvery = std::chrono::seconds(10);
  for (;;) {
    const Deadline slice = earlier(deadline, Deadline::in(kReportEvery));
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
