// The nodes of a job find each other, check each other, and leave with the same list of nodes.
//
//   node 0 (coordinator)                          node k
//   hosts the store                               connects, proving the token or being enrolled
//   publishes the job id                          compares it with its own
//                  each claims its number and publishes what it is (Introduction)
//   publishes the roster when all are there       waits for it, naming the missing nodes every 10 s
//                  each tries to reach every other one and reports
//   says go, or why not                           waits for it
//
// Every wait has a deadline: --join_timeout to meet, a minute to check. See claims.h, gathering.h, roster.h and
// preflight.h for the steps. The nodes of an elastic job gather again when one leaves or joins; a node that comes
// later, or that has lost the coordinator, is a newcomer (newcomer.h).
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/core/clock.h"
#include "trireme/core/deadline.h"
#include "trireme/core/token.h"
#include "trireme/launch/nodes/introduction.h"
#include "trireme/launch/nodes/job_link.h"
#include "trireme/launch/nodes/roster.h"
#include "trireme/launch/nodes/seat.h"
#include "trireme/launch/plan.h"
#include "trireme/store/etcd_store.h"
#include "trireme/store/tcp_client.h"
#include "trireme/store/tcp_server.h"

namespace trireme::launch {

/// What a node that meets the others again knows of its job.
struct JobPast {
  int attempt = 0;             // the next one
  int restarts = 0;            // so far
  int members = 0;             // nodes that are expected to come, this one among them
  std::string departure = {};  // why the nodes meet again
  std::optional<Token> token = {};
  std::optional<Deadline> deadline = {};  // to find the coordinator or to become it; nothing: --join_timeout
};

/// How long a node looks for its job after it has lost the coordinator. With etcd another node takes the coordinator's
/// place, but not before the lease has ended.
Millis rejoin_time(const Request& request);

class Meeting {
 public:
  /// One node: a store of its own on its address, no wait.
  static std::unique_ptr<Meeting> alone(const NodeInfo& self, int max_restart);
  /// Meets the other nodes. `given` is the token that came with --ssh, if any. Throws PeerError (which node is missing,
  /// refused or unreachable, and what to check) or UsageError. `request` must outlive the meeting.
  static std::unique_ptr<Meeting> with_others(const Request& request, const Seat& seat, const NodeInfo& self,
                                              const std::optional<Token>& given, const JobPast& past = {});
  ~Meeting();

  int node() const { return node_; }
  /// In node order; equal on all nodes.
  const std::vector<NodeInfo>& nodes() const { return nodes_; }
  const Token& token() const { return *token_; }
  /// The job's store, as workers reach it.
  const Endpoint& store() const { return store_; }
  /// Node 0's --max_restart counts for all.
  int max_restart() const { return roster_.max_restart; }

  // --- an elastic job
  const ElasticRules& rules() const { return roster_.rules; }
  /// Of these nodes.
  int attempt() const { return roster_.attempt; }
  int restarts() const { return roster_.restarts; }
  /// Gathers the nodes of the next attempt. Nothing: nodes() and link() are those of that attempt. Else how the job
  /// ends, or that the coordinator is lost.
  std::optional<JobOutcome> gather_again(const JobPast& past, const JobLink::Objection& objection);
  /// What a signal to this launcher means: this node leaves, and has no number from now on, or the job ends.
  JobOutcome outcome_of_signal(int signal);
  /// What it means that this node cannot reach that one: this node leaves, as above, or the job ends.
  JobOutcome outcome_of_cut(int other, const std::string& why);
  bool has_left() const { return left_; }
  /// Tells nodes that wait for the next attempt that the job is over, and waits until those of this attempt have ended.
  void close(const JobOutcome& outcome, Deadline deadline);
  /// Unique names of the launchers, in node order.
  const std::vector<std::string>& names() const { return names_; }

  JobLink& link() { return *link_; }
  /// Where each node answers pings.
  const std::vector<Endpoint>& probes() const { return probes_; }
  store::TcpStore& control() { return *control_; }
  /// Where the job's store is: whether any rank has ever connected to it.
  bool hosting() const { return server_ != nullptr; }
  bool any_rank_joined() const { return *rank_joined_; }
  /// The job's store, as this launcher uses it.
  std::shared_ptr<Store> keys() const { return control_; }
  /// To be called last: the host of the store stays until every node has heard the outcome, 2 s at most.
  void farewell();

 private:
  static constexpr const char* kCoordinator = "coordinator";  // its address in etcd
  static constexpr std::chrono::seconds kToRestart{60};       // for all nodes, beyond the grace

  Meeting() = default;
  store::TcpStoreServer::Options server_options() const;
  void host_or_join(const Request& request, const Seat& seat, const std::optional<Token>& given, Deadline deadline);
  void meet_by_etcd(const Request& request, const Seat& seat, const std::optional<Token>& token, Deadline deadline);
  void host(const Request& request, const Seat& seat, UniqueFd listener, const std::optional<Token>& token);
  void connect_to(const Endpoint& coordinator, const std::optional<Token>& token, Deadline deadline);
  void compare_job(const Request& request);
  void take_number(bool newcomer, Deadline deadline);
  void serve_probe(const Seat& seat);
  void enter(const NodeInfo& self, const JobPast& past, Deadline deadline);
  Roster gather_nodes(const JobPast& past, const JobLink::Objection& objection);
  Roster await_roster(const Introduction& self, Deadline deadline);
  bool names_this_node(const Roster& roster) const;
  void adopt(Roster roster);
  void check_everyone();
  void open_link();
  std::optional<JobOutcome> lost_lease() const;
  JobOutcome replaceable() const;
  std::optional<JobOutcome> deposed();
  std::optional<JobOutcome> called_off(int attempt);
  void leave();
  bool pinned() const { return hosting() && !directory_; }  // the job cannot go on without this node

  const Request* request_ = nullptr;
  Seat seat_;
  int node_ = -1;
  bool left_ = false;
  int number_ = -1;  // claimed; in a job whose nodes change it may differ from node_
  int round_ = -1;
  Roster roster_;  // of that round
  std::string name_;
  std::vector<NodeInfo> nodes_;
  std::vector<std::string> names_;
  std::vector<Endpoint> probes_;
  Endpoint own_probe_;
  std::optional<Token> token_;
  std::optional<Token> known_token_;  // of the meeting before
  Endpoint store_;
  Millis link_timeout_ = kLinkTimeout;
  std::shared_ptr<LostNodes> lost_;
  std::shared_ptr<std::atomic<bool>> rank_joined_ = std::make_shared<std::atomic<bool>>(false);
  std::unique_ptr<store::TcpStoreServer> server_;  // on node 0: the job's store
  std::unique_ptr<store::TcpStoreServer> probe_;   // on the others: answers pings
  std::unique_ptr<store::EtcdStore> directory_;    // while etcd must know where the coordinator is
  std::shared_ptr<store::TcpStore> control_;
  std::unique_ptr<JobLink> link_;
};

}  // namespace trireme::launch
