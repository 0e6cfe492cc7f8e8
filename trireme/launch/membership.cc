#include "trireme/launch/membership.h"

#include <fmt/format.h>
#include <signal.h>

#include "trireme/core/text.h"

namespace trireme::launch {

ElasticRules elastic_rules(const Request& request) {
  ElasticRules rules{
      .min = request.fewest_nodes(), .max = request.nodes.value_or(1), .timeout = request.elastic_timeout};
  const bool wanted = rules.range() || request.max_restart > 0;
  const int level = request.elastic_level.value_or(wanted ? 1 : -1);
  rules.on = level >= 0 && rules.max > 1;
  rules.failing_node_leaves = rules.on && level == 0;
  return rules;
}

// With a fixed number of nodes Ctrl-C comes from a user who ends the job, and SIGTERM from a scheduler that needs the
// machine.
bool signal_means_leave(int signal, const ElasticRules& rules, bool pinned) {
  return rules.on && !pinned && (rules.range() || signal == SIGTERM);
}

Gathered judge(const Gathering& gathering, const ElasticRules& rules) {
  if (gathering.present >= rules.max) return Gathered::go;
  const bool enough = gathering.present >= rules.min;
  const bool over = gathering.waited >= gathering.patience;
  if (enough && (over || gathering.present >= gathering.expected || gathering.quiet >= rules.timeout))
    return Gathered::go;
  return over ? Gathered::give_up : Gathered::wait;
}

namespace {

Step job_step(const JobOutcome& outcome, const Situation& situation) {
  if (situation.unkillable || outcome.final) return Step::end;
  switch (outcome.kind) {
    case JobOutcome::Kind::worker_failed:
      if (situation.rules.failing_node_leaves) return situation.failed_here ? Step::end : Step::gather;
      return situation.restarts < situation.max_restart ? Step::restart : Step::end;
    case JobOutcome::Kind::node_lost:
    case JobOutcome::Kind::node_left:
    case JobOutcome::Kind::node_joined:
      if (!situation.rules.on) return Step::end;
      return outcome.coordinator ? Step::rejoin : Step::gather;
    default:
      return Step::end;
  }
}

}  // namespace

Step next_step(const JobOutcome& outcome, const Situation& situation) {
  const Step step = job_step(outcome, situation);
  return step != Step::end && situation.leaves ? Step::leave : step;
}

std::string node_words(int node, const NodeInfo& info) {
  return fmt::format("node {} ({}, {})", node, info.host, info.address);
}

std::string membership_line(const Membership& membership, const std::vector<std::string>& arrivals, int this_node) {
  const auto count = [](size_t number, const char* noun) {
    return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
  };
  std::string line = fmt::format("attempt {} has {}, {}", membership.attempt, count(membership.hosts.size(), "node"),
                                 count(static_cast<size_t>(membership.ranks), "rank"));
  if (!membership.why.empty()) line += ": " + membership.why;
  if (!arrivals.empty()) line += fmt::format("; new: {}", join(arrivals, ", "));
  return line + fmt::format("; this is node {}", this_node);
}

}  // namespace trireme::launch
