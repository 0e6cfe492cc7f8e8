// The coordinator gathers the nodes of the next attempt: those that are left, and those that come. judge()
// (membership.h) decides when the gathering ends; gather() waits and makes the list.
//
//   Roster roster = gather(store, {.seat = seat, .rules = rules, .patience = request.join_timeout}, departures);
//   publish_roster(store, round, roster);
#pragma once

#include "trireme/launch/membership.h"
#include "trireme/launch/nodes/job_link.h"
#include "trireme/launch/nodes/roster.h"

namespace trireme::launch {

struct GatherOptions {
  const Seat& seat;
  ElasticRules rules;
  Millis patience;   // to wait for enough nodes
  int expected = 0;  // nodes that are known to come, besides those that are there
  int attempt = 0;   // the coordinator's next; a node that knows a later one wins
  int restarts = 0;  // likewise
  int max_restart = 0;
  std::string departure{};  // why the nodes gather again; empty for a new job
  JobLink::Objection objection;
};

/// `Roster::over` when not enough nodes came, or at an objection. A new job without enough nodes is a PeerError.
Roster gather(Store& store, const GatherOptions& options, LostNodes& departures);

}  // namespace trireme::launch
