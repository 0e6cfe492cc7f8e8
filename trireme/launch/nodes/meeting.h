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
// Every wait has a deadline: --join_timeout to meet, a minute to check. See roster.h and preflight.h for the steps.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/core/clock.h"
#include "trireme/core/token.h"
#include "trireme/launch/nodes/introduction.h"
#include "trireme/launch/nodes/job_link.h"
#include "trireme/launch/nodes/seat.h"
#include "trireme/launch/plan.h"
#include "trireme/store/tcp_client.h"
#include "trireme/store/tcp_server.h"

namespace trireme::launch {

class Meeting {
 public:
  /// One node: a store of its own on its address, no wait.
  static std::unique_ptr<Meeting> alone(const NodeInfo& self, int max_restart);
  /// Meets the other nodes. `given` is the token that came with --ssh, if any. Throws PeerError (which node is missing,
  /// refused or unreachable, and what to check) or UsageError.
  static std::unique_ptr<Meeting> with_others(const Request& request, const Seat& seat, const NodeInfo& self,
                                              const std::optional<Token>& given);
  ~Meeting();

  int node() const { return node_; }
  /// In node order; equal on all nodes.
  const std::vector<NodeInfo>& nodes() const { return nodes_; }
  const Token& token() const { return *token_; }
  /// The job's store, as workers reach it.
  const Endpoint& store() const { return store_; }
  /// Node 0's --max_restart counts for all.
  int max_restart() const { return max_restart_; }
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
  Meeting() = default;
  store::TcpStoreServer::Options server_options() const;
  void host_or_join(const Request& request, const Seat& seat, const std::optional<Token>& given, Deadline deadline);
  void meet_by_etcd(const Request& request, const Seat& seat, const std::optional<Token>& token, Deadline deadline);
  void host(const Request& request, const Seat& seat, UniqueFd listener, const std::optional<Token>& token);
  void connect_to(const Request& request, const Endpoint& coordinator, const std::optional<Token>& token,
                  Deadline deadline);
  void compare_job(const Request& request);
  void serve_probe(const Seat& seat);
  void meet(const Request& request, const Seat& seat, Introduction self, Deadline deadline);
  void open_link(Millis grace);

  int node_ = -1;
  std::string name_;
  std::vector<NodeInfo> nodes_;
  std::vector<std::string> names_;
  std::vector<Endpoint> probes_;
  Endpoint own_probe_;
  std::optional<Token> token_;
  Endpoint store_;
  int max_restart_ = 0;
  std::shared_ptr<LostNodes> lost_;
  std::shared_ptr<std::atomic<bool>> rank_joined_ = std::make_shared<std::atomic<bool>>(false);
  std::unique_ptr<store::TcpStoreServer> server_;  // on node 0: the job's store
  std::unique_ptr<store::TcpStoreServer> probe_;   // on the others: answers pings
  std::unique_ptr<Store> directory_;               // etcd, while it must know where the coordinator is
  std::shared_ptr<store::TcpStore> control_;
  std::unique_ptr<JobLink> link_;
};

}  // namespace trireme::launch
