// A meeting from one attempt to the next: who takes part, who leaves, and what becomes of a coordinator that is cut
// off.
#include <algorithm>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/launch/nodes/claims.h"
#include "trireme/launch/nodes/meeting.h"

namespace trireme::launch {
namespace {

constexpr Millis kToStop{3000};  // all workers of a node, by SIGKILL

}  // namespace

// A node whose user ends the job does not wait for the others to gather.
std::optional<JobOutcome> Meeting::called_off(int attempt) {
  const auto text = control_->try_get(StoreLink::outcome_key(attempt));
  if (!text) return std::nullopt;
  JobOutcome outcome = outcome_from_json(*text);
  return outcome.final ? std::optional(std::move(outcome)) : std::nullopt;
}

// Another node may take the job over when the lease has ended, so this one must have stopped by then.
std::optional<JobOutcome> Meeting::lost_lease() const {
  if (directory_->lease_left() > kToStop) return std::nullopt;
  JobOutcome outcome = replaceable();
  outcome.at_once = true;
  return outcome;
}

JobOutcome Meeting::replaceable() const {
  return JobOutcome::lost_coordinator(
      fmt::format("node 0 ({}, {}) has not reached etcd at {} for so long that another node may take the job over",
                  nodes_[0].host, to_string(store_), to_string(*request_->etcd)));
}

// A coordinator that cannot reach etcd is the one that is cut off.
std::optional<JobOutcome> Meeting::deposed() {
  if (!directory_) return std::nullopt;
  try {
    if (directory_->try_get(kCoordinator) == to_string(store_)) return std::nullopt;
  } catch (const PeerError& error) {
    log_warning("{}", error.what());
  }
  return replaceable();
}

std::optional<JobOutcome> Meeting::gather_again(const JobPast& past, const JobLink::Objection& objection) try {
  Roster roster;
  if (hosting()) {
    roster = gather_nodes(past, [&](Deadline deadline) {
      if (auto reason = objection(deadline)) return reason;
      if (auto reason = called_off(past.attempt)) return reason;
      return directory_ ? lost_lease() : std::nullopt;
    });
    if (const auto reason = deposed()) return reason;
    if (roster.over) return roster.over;  // close() tells the others
    publish_roster(*control_, round_ + 1, roster);
  } else {
    const Deadline deadline = Deadline::in(request_->grace + rules().timeout + kToRestart);
    roster = read_roster(*control_, seat_, round_ + 1, deadline, objection);
    if (roster.over) return roster.over;
    if (!names_this_node(roster)) throw PeerError("the others took this node for lost");
  }
  ++round_;
  adopt(std::move(roster));
  open_link();
  return std::nullopt;
} catch (const PeerError& error) {
  return JobOutcome::lost_coordinator(
      fmt::format("lost the connection to node 0 ({}, {}): {}", nodes_[0].host, to_string(store_), error.what()));
}

JobOutcome Meeting::outcome_of_signal(int signal) {
  const NodeInfo& self = nodes_[static_cast<size_t>(node_)];
  if (signal_means_leave(signal, rules(), pinned())) {
    leave();
    JobOutcome outcome = JobOutcome::left(signal, node_words(node_, self));
    outcome.coordinator = hosting();
    return outcome;
  }
  JobOutcome outcome = JobOutcome::of_signal(signal, self.host);
  if (signal_means_leave(signal, rules(), false))
    outcome.reason += ", which hosts the job's store; with --master etcd://HOST:PORT the other nodes would go on";
  return outcome;
}

JobOutcome Meeting::outcome_of_cut(int other, const std::string& why) {
  const auto words = [this](int node) { return node_words(node, nodes_[static_cast<size_t>(node)]); };
  const std::string cut = fmt::format("{} cannot reach {}: {}", words(node_), words(other), why);
  if (!rules().on || pinned()) return JobOutcome::lost(cut);
  leave();
  JobOutcome outcome{.kind = JobOutcome::Kind::node_left, .exit_code = exit_code::kPeer, .reason = cut + "; it leaves"};
  outcome.coordinator = hosting();
  return outcome;
}

// A lost coordinator needs to be told nothing.
void Meeting::leave() try {
  if (!std::exchange(left_, true)) give_up_number(*control_, number_);
} catch (const PeerError&) {
}

void Meeting::close(const JobOutcome& outcome, Deadline deadline) {
  if (!rules().on || !hosting()) return;
  const Roster last{.attempt = roster_.attempt, .rules = rules(), .over = outcome};
  publish_roster(*control_, round_ + 1, last);
  const auto gone = [this](const std::string& name) { return name == name_ || lost_->contains(name); };
  while (!std::all_of(names_.begin(), names_.end(), gone) && !deadline.passed()) {
    wait_readable(lost_->wake_fd(), deadline);
    lost_->take();
  }
}

}  // namespace trireme::launch
