#include "trireme/launch/nodes/meeting.h"

#include <unistd.h>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/launch/nodes/preflight.h"
#include "trireme/launch/nodes/roster.h"
#include "trireme/store/etcd_store.h"

namespace trireme::launch {

namespace {

constexpr auto kShortly = std::chrono::seconds(10);
constexpr auto kLease = std::chrono::seconds(10);      // of the coordinator's entry in etcd
constexpr auto kToRestart = std::chrono::seconds(60);  // beyond the grace
constexpr auto kFarewell = std::chrono::seconds(2);
constexpr auto kRequestTime = std::chrono::seconds(5);  // for the coordinator's answer to a short question

std::string unique_name() {
  return fmt::format("{}/{}/{}", host_name(), ::getpid(), to_hex(random_bytes(4)));
}

store::TcpStoreServer::Enrolment enrolment_for(const Seat& seat) {
  store::TcpStoreServer::Enrolment enrolment;
  enrolment.max_joins = seat.nodes - 1;
  for (size_t i = 1; i < seat.peers.size(); ++i) enrolment.allowed_ips[resolve_ip(seat.peers[i])] = 1;
  return enrolment;
}

UniqueFd listen_as_coordinator(const Seat& seat) {
  try {
    return listen_tcp(seat.meeting->host, seat.meeting->port);
  } catch (const SystemError& error) {
    if (error.number() != EADDRINUSE || !seat.must_host) throw;
    throw UsageError(
        "the nodes of this job meet at {}, but that port is held by another job or program (see: ss -ltnp 'sport = "
        ":{}'); wait for "
        "it to end, or choose another --start_port or --master",
        to_string(*seat.meeting), seat.meeting->port);
  }
}

Token enrol_at(const Endpoint& coordinator, Deadline deadline) {
  try {
    return store::enrol(coordinator, deadline);
  } catch (const PeerError& error) {
    if (deadline.passed()) throw;
    throw PeerError(
        "{}. If another job is meeting at {}, wait for it to end or choose another --start_port or --master",
        error.what(), to_string(coordinator));
  }
}

}  // namespace

Meeting::~Meeting() = default;

std::unique_ptr<Meeting> Meeting::alone(const NodeInfo& self, int max_restart) {
  std::unique_ptr<Meeting> meeting(new Meeting);
  meeting->node_ = 0;
  meeting->nodes_ = {self};
  meeting->max_restart_ = max_restart;
  meeting->token_ = Token::random();
  meeting->server_ = std::make_unique<store::TcpStoreServer>(listen_tcp(self.address, 0), meeting->server_options());
  meeting->store_ = {self.address, meeting->server_->port()};
  meeting->control_ = store::TcpStore::connect(
      {.server = meeting->store_, .token = *meeting->token_, .request_timeout = kRequestTime}, Deadline::in(kShortly));
  meeting->link_ = std::make_unique<SoloLink>();
  return meeting;
}

std::unique_ptr<Meeting> Meeting::with_others(const Request& request, const Seat& seat, const NodeInfo& self,
                                              const std::optional<Token>& given) {
  std::unique_ptr<Meeting> meeting(new Meeting);
  const Deadline deadline = Deadline::in(request.join_timeout);
  meeting->name_ = unique_name();
  meeting->lost_ = std::make_shared<LostNodes>();
  meeting->max_restart_ = request.max_restart;
  meeting->host_or_join(request, seat, given, deadline);
  const std::optional<int> wanted = meeting->hosting() ? 0 : seat.node >= 0 ? std::optional(seat.node) : std::nullopt;
  meeting->node_ = claim_number(*meeting->control_, meeting->name_, wanted, seat.nodes);
  meeting->serve_probe(seat);
  meeting->meet(request, seat, introduce(request, self, meeting->name_), deadline);
  meeting->open_link(request.grace);
  return meeting;
}

store::TcpStoreServer::Options Meeting::server_options() const {
  store::TcpStoreServer::Options options{.token = *token_};
  options.on_connect = [joined = rank_joined_](const std::string& name) {
    if (name.starts_with("rank ")) *joined = true;  // as connect_job() calls itself
  };
  return options;
}

// --- finding the coordinator, or becoming it

void Meeting::host_or_join(const Request& request, const Seat& seat, const std::optional<Token>& given,
                           Deadline deadline) {
  const std::optional<Token> token = given ? given : configured_token();
  if (!seat.meeting) return meet_by_etcd(request, seat, token, deadline);
  if (seat.may_host) {
    try {
      UniqueFd listener = listen_as_coordinator(seat);
      return host(request, seat, std::move(listener), token);
    } catch (const SystemError& error) {
      if (error.number() != EADDRINUSE) throw;  // else another node on this machine was first
    }
  }
  connect_to(request, *seat.meeting, token, deadline);
}

// The address in etcd may be that of a coordinator that has died; its lease ends within kLease, and then another node
// takes its place. So both are tried in turn.
void Meeting::meet_by_etcd(const Request& request, const Seat& seat, const std::optional<Token>& token,
                           Deadline deadline) {
  directory_ = std::make_unique<store::EtcdStore>(store::EtcdStore::Options{
      .server = *request.etcd, .prefix = fmt::format("trireme/{}/", request.job_id), .lease_ttl = kLease});
  UniqueFd listener = listen_tcp(seat.address, 0);
  const std::string mine = to_string({seat.address, port_of(local_address(listener.get()))});
  for (;;) {
    if (seat.may_host && directory_->compare_set("coordinator", "", mine) == mine)
      return host(request, seat, std::move(listener), token);
    const Deadline soon = earlier(deadline, Deadline::in(std::chrono::seconds(3)));
    try {
      const std::string found = directory_->get("coordinator", soon);
      return connect_to(request, parse_endpoint(found, "the coordinator's address in etcd"), token, soon);
    } catch (const PeerError& error) {
      if (!soon.passed() || deadline.passed()) throw;
      log_info("waiting for node 0 to be found through etcd at {}: {}", to_string(*request.etcd), error.what());
    }
  }
}

void Meeting::host(const Request& request, const Seat& seat, UniqueFd listener, const std::optional<Token>& token) {
  token_ = token ? *token : Token::random();
  store::TcpStoreServer::Options options = server_options();
  if (!token) options.enrolment = enrolment_for(seat);
  options.on_disconnect = [lost = lost_](const std::string& name) { lost->add(name); };
  server_ = std::make_unique<store::TcpStoreServer>(std::move(listener), std::move(options));
  store_ = {seat.address, server_->port()};
  if (seat.peers.empty() && !request.master && !request.etcd)
    log_info("this is node 0; on the other nodes run: trireme launch --master {} --nnodes {} …", to_string(store_),
             seat.nodes);
  if (!token)
    log_warning(
        "nodes are not authenticated: no token file (TRIREME_TOKEN_FILE or ~/.config/trireme/token); only {} may join, "
        "once each",
        seat.peers.empty() ? fmt::format("{} more", seat.nodes - 1) : "the listed addresses");
  control_ = store::TcpStore::connect({.server = store_, .token = *token_, .request_timeout = kRequestTime},
                                      Deadline::in(kShortly));
  control_->set("nnodes", std::to_string(seat.nodes));
  control_->set("job", request.job_id);
}

void Meeting::connect_to(const Request& request, const Endpoint& coordinator, const std::optional<Token>& token,
                         Deadline deadline) {
  const auto waiting = [&](const PeerError& error) {
    return fmt::format("waiting for node 0 at {}: {}", to_string(coordinator), error.what());
  };
  token_ = token ? *token
                 : patiently(
                       deadline, [&](Deadline slice) { return enrol_at(coordinator, slice); }, waiting);
  if (!token) log_warning("nodes are not authenticated: no token file (TRIREME_TOKEN_FILE or ~/.config/trireme/token)");
  control_ = patiently(
      deadline,
      [&](Deadline slice) {
        return store::TcpStore::connect(
            {.server = coordinator, .token = *token_, .name = name_, .request_timeout = kRequestTime}, slice);
      },
      waiting);
  store_ = coordinator;
  compare_job(request);
}

void Meeting::compare_job(const Request& request) {
  const std::string job = control_->get("job", Deadline::in(kShortly));
  if (job != request.job_id)
    throw UsageError(
        "the job at {} is \"{}\", but this node was started with --job_id \"{}\"; is another job meeting there?",
        to_string(store_), printable(job), request.job_id);
  const std::string nodes = control_->get("nnodes", Deadline::in(kShortly));
  if (nodes != std::to_string(*request.nodes))
    throw UsageError("the job at {} was started for {} nodes, but this node for {}; give the same --nnodes everywhere",
                     to_string(store_), printable(nodes), *request.nodes);
}

// --- getting to know each other

void Meeting::serve_probe(const Seat& seat) {
  if (hosting()) {
    own_probe_ = store_;
    return;
  }
  probe_ = std::make_unique<store::TcpStoreServer>(listen_tcp(seat.address, 0),
                                                   store::TcpStoreServer::Options{.token = *token_});
  own_probe_ = {seat.address, probe_->port()};
}

void Meeting::meet(const Request& request, const Seat& seat, Introduction self, Deadline deadline) {
  self.probe = own_probe_;
  const FolderMark mark(self);
  control_->set(introduction_key(node_), to_json(self));
  if (hosting()) publish_roster(*control_, seat, request.max_restart, *lost_, deadline);
  const Roster roster = read_roster(*control_, seat, deadline);
  max_restart_ = roster.max_restart;
  const Clearance clearance = check_each_other({*control_, *token_, roster.nodes, node_, lost_.get()});
  for (const Introduction& introduction : roster.nodes) {
    nodes_.push_back(introduction.info);
    names_.push_back(introduction.name);
    probes_.push_back(introduction.probe);
  }
  if (!clearance.shared_log_dir) return;
  for (size_t i = 0; i < nodes_.size(); ++i) nodes_[i].log_dir += fmt::format("/node{}", i);
}

void Meeting::farewell() {
  if (hosting()) link_->farewell(Deadline::in(kFarewell));
}

void Meeting::open_link(Millis grace) {
  const auto describe = [nodes = nodes_, names = names_](const std::string& name) -> std::optional<std::string> {
    for (size_t i = 0; i < names.size(); ++i)
      if (names[i] == name) return fmt::format("node {} ({}, {})", i, nodes[i].host, nodes[i].address);
    return std::nullopt;  // not part of the job: refused, or too late
  };
  link_ = std::make_unique<StoreLink>(StoreLink::Options{
      .store = control_,
      .nodes = static_cast<int>(nodes_.size()),
      .coordinator = fmt::format("node 0 ({}, {})", nodes_[0].host, to_string(store_)),
      .lost = hosting() ? lost_ : nullptr,
      .describe = describe,
      .attempt_timeout = grace + kToRestart,
  });
}

}  // namespace trireme::launch
