// Which nodes make up a job, and what a node does when that changes: pure functions, no clock, no process.
//
// Words. The *members* are the nodes that run an attempt together. An *elastic* job goes on with other members: a
// *departure* (a lost node, or one whose launcher was told to end) and an *arrival* end the attempt, and the nodes
// *gather* for the next one. The coordinator judges the gathering; every node carries out its own step().
//
//   const ElasticRules rules = elastic_rules(request);
//   switch (next_step(outcome, {.rules = rules, .max_restart = 3})) …
//   if (judge(gathering, rules) == Gathered::go) publish_roster(…);
#pragma once

#include <string>
#include <vector>

#include "trireme/core/clock.h"
#include "trireme/launch/options/request.h"
#include "trireme/launch/plan.h"
#include "trireme/launch/report/outcome.h"

namespace trireme::launch {

struct ElasticRules {
  bool on = false;
  bool failing_node_leaves = false;  // --elastic_level 0
  int min = 1;
  int max = 1;
  Millis timeout{30'000};
  bool range() const { return min < max; }
};

/// What --nnodes, --max_restart and --elastic_* say together.
ElasticRules elastic_rules(const Request& request);

/// Whether this signal to a launcher takes its node out of the job, instead of ending the job. `pinned`: the job cannot
/// go on without this node.
bool signal_means_leave(int signal, const ElasticRules& rules, bool pinned);

// --- gathering

struct Gathering {
  int present = 0;     // nodes that have introduced themselves
  int expected = 0;    // so many are known to come: members that are left, nodes that wait for a seat; all of a new job
  Millis waited{0};    // since the gathering began
  Millis quiet{0};     // since the last node came or went
  Millis patience{0};  // to wait for enough nodes
};
enum class Gathered { wait, go, give_up };
Gathered judge(const Gathering& gathering, const ElasticRules& rules);

// --- after an attempt

enum class Step {
  end,      // the job is over
  leave,    // this launcher ends, after telling the others not to wait for it
  restart,  // again with the same members; counts against --max_restart
  gather,   // the members that are left, and those that came, make up the next attempt
  rejoin,   // the coordinator is lost: look for the job again, as a newcomer
};

struct Situation {
  ElasticRules rules = {};
  int restarts = 0;  // so far
  int max_restart = 0;
  bool leaves = false;       // this launcher was told to end, or cannot reach another node
  bool unkillable = false;   // a worker here survived SIGKILL
  bool failed_here = false;  // the culprit is a worker of this node
};
Step next_step(const JobOutcome& outcome, const Situation& situation);

/// "node 1 (beta, 10.77.0.2)"
std::string node_words(int node, const NodeInfo& info);
/// One line about new members: "attempt 2 has 2 nodes, 4 ranks: node 2 (gamma, 10.77.0.3) left: SIGTERM; this is node
/// 0".
std::string membership_line(const Membership& membership, const std::vector<std::string>& arrivals, int this_node);

}  // namespace trireme::launch
