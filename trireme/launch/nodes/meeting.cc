#include "trireme/launch/nodes/meeting.h"

#include <unistd.h>

#include <algorithm>
#include <set>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/launch/nodes/claims.h"
#include "trireme/launch/nodes/gathering.h"
#include "trireme/launch/nodes/newcomer.h"
#include "trireme/launch/nodes/preflight.h"
#include "trireme/launch/restart_delay.h"

namespace trireme::launch {

namespace {

constexpr auto kShortly = std::chrono::seconds(10);
constexpr auto kLease = std::chrono::seconds(10);  // of the coordinator's entry in etcd
constexpr auto kFarewell = std::chrono::seconds(2);

const JobLink::Objection no_objection = [](Deadline) { return std::nullopt; };

bool is_elastic(Store& store) {
  return store.get("elastic", Deadline::in(kShortly)) == "yes";
}

// For the coordinator's answer to a short question. A wait for the outcome that gets no answer, and a try to connect
// again, come before it and take 3 s.
Millis request_time(Millis link_timeout) {
  return std::max<Millis>(link_timeout - std::chrono::seconds(3), std::chrono::seconds(1));
}

std::string unique_name() {
  return fmt::format("{}/{}/{}", host_name(), ::getpid(), to_hex(random_bytes(4)));
}

// Where the launchers of the other nodes come from, as far as the command line says.
std::set<std::string> expected_ips(const Seat& seat) {
  std::set<std::string> ips(seat.peer_ips.begin(), seat.peer_ips.end());
  ips.insert(seat.address);
  return ips;
}

// As connect_job() calls itself.
bool is_rank(const std::string& client) {
  return client.starts_with("rank ");
}

store::TcpStoreServer::Enrolment enrolment_for(const Seat& seat) {
  store::TcpStoreServer::Enrolment enrolment;
  enrolment.max_joins = seat.nodes - 1;
  enrolment.has_joined = [](const std::string& name) { return !is_rank(name); };
  for (size_t i = 1; i < seat.peer_ips.size(); ++i) enrolment.allowed_ips[seat.peer_ips[i]] = 1;
  return enrolment;
}

UniqueFd listen_as_coordinator(const Seat& seat) {
  try {
    return listen_tcp(seat.meeting->host, seat.meeting->port);
  } catch (const SystemError& error) {
    if (error.number() != EADDRINUSE || !seat.must_host) throw;
    throw UsageError(
        "the nodes of this job meet at {}, but that port is held by another job or program (see: ss -ltnp 'sport = "
        ":{}'); wait for it to end, or choose another --start_port or --master",
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

Millis rejoin_time(const Request& request) {
  return request.elastic_timeout + request.grace + (request.etcd ? Millis(kLease) : Millis(0));
}

std::unique_ptr<Meeting> Meeting::alone(const NodeInfo& self, int max_restart) {
  std::unique_ptr<Meeting> meeting(new Meeting);
  meeting->node_ = 0;
  meeting->nodes_ = {self};
  meeting->roster_.max_restart = max_restart;
  meeting->token_ = Token::random();
  meeting->server_ = std::make_unique<store::TcpStoreServer>(listen_tcp(self.address, 0), meeting->server_options());
  meeting->store_ = {self.address, meeting->server_->port()};
  meeting->control_ = store::TcpStore::connect(
      {.server = meeting->store_, .token = *meeting->token_, .request_timeout = request_time(kLinkTimeout)},
      Deadline::in(kShortly));
  meeting->link_ = std::make_unique<SoloLink>();
  return meeting;
}

std::unique_ptr<Meeting> Meeting::with_others(const Request& request, const Seat& seat, const NodeInfo& self,
                                              const std::optional<Token>& given, const JobPast& past) {
  std::unique_ptr<Meeting> meeting(new Meeting);
  const Deadline deadline = past.deadline.value_or(Deadline::in(request.join_timeout));
  meeting->request_ = &request;
  meeting->seat_ = seat;
  meeting->name_ = unique_name();
  meeting->lost_ = std::make_shared<LostNodes>();
  meeting->link_timeout_ = request.link_timeout;
  meeting->known_token_ = past.token;
  meeting->host_or_join(request, seat, given, deadline);
  // A node 0 that knows nothing of the job's past takes its own time to gather the others.
  meeting->enter(self, past, past.deadline ? Deadline::at(deadline.time() + rejoin_time(request)) : deadline);
  return meeting;
}

store::TcpStoreServer::Options Meeting::server_options() const {
  store::TcpStoreServer::Options options{.token = *token_, .link_timeout = link_timeout_};
  options.on_connect = [joined = rank_joined_](const std::string& name) {
    if (is_rank(name)) *joined = true;
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
  connect_to(*seat.meeting, token, deadline);
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
    if (seat.may_host && directory_->compare_set(kCoordinator, "", mine) == mine)
      return host(request, seat, std::move(listener), token);
    const Deadline soon = earlier(deadline, Deadline::in(std::chrono::seconds(3)));
    try {
      const std::string found = directory_->get(kCoordinator, soon);
      return connect_to(parse_endpoint(found, "the coordinator's address in etcd"), token, soon);
    } catch (const PeerError& error) {
      if (!soon.passed() || deadline.passed()) throw;
      log_info("waiting for node 0 to be found through etcd at {}: {}", to_string(*request.etcd), error.what());
    }
  }
}

void Meeting::host(const Request& request, const Seat& seat, UniqueFd listener, const std::optional<Token>& token) {
  token_ = token ? *token : known_token_ ? *known_token_ : Token::random();
  store::TcpStoreServer::Options options = server_options();
  if (!token) options.enrolment = enrolment_for(seat);
  options.expected_ips = expected_ips(seat);
  options.on_disconnect = [lost = lost_](const std::string& name) { lost->add(name); };
  server_ = std::make_unique<store::TcpStoreServer>(std::move(listener), std::move(options));
  store_ = {seat.address, server_->port()};
  if (seat.peers.empty() && !request.master && !request.etcd)
    log_info("this is node 0; on the other nodes run: trireme launch --master {} --nnodes {} …", to_string(store_),
             request.nodes_text());
  if (!token)
    log_warning(
        "nodes are not authenticated: no token file (TRIREME_TOKEN_FILE or ~/.config/trireme/token); only {} may join, "
        "once each",
        seat.peers.empty() ? fmt::format("{} more", seat.nodes - 1) : "the listed addresses");
  control_ = store::TcpStore::connect(
      {.server = store_, .token = *token_, .request_timeout = request_time(link_timeout_)}, Deadline::in(kShortly));
  control_->set("nnodes", request.nodes_text());
  control_->set("elastic", elastic_rules(request).on ? "yes" : "no");
  control_->set("job", request.job_id);
}

void Meeting::connect_to(const Endpoint& coordinator, const std::optional<Token>& token, Deadline deadline) {
  const auto waiting = [&](const PeerError& error) {
    return fmt::format("waiting for node 0 at {}: {}", to_string(coordinator), error.what());
  };
  const auto connect = [&](Deadline slice) {
    return store::TcpStore::connect({.server = coordinator,
                                     .token = *token_,
                                     .name = name_,
                                     .request_timeout = request_time(link_timeout_),
                                     .link_timeout = link_timeout_},
                                    slice);
  };
  store_ = coordinator;
  if (!token && known_token_) {
    token_ = known_token_;
    try {
      control_ = patiently(deadline, connect, waiting);
      return;
    } catch (const PeerError&) {
      if (deadline.passed()) throw;  // else a coordinator that was started anew has another token
    }
  }
  const auto enrol = [&](Deadline slice) { return enrol_at(coordinator, slice); };
  token_ = token ? *token : patiently(deadline, enrol, waiting);
  if (!token) log_warning("nodes are not authenticated: no token file (TRIREME_TOKEN_FILE or ~/.config/trireme/token)");
  control_ = patiently(deadline, connect, waiting);
}

void Meeting::compare_job(const Request& request) {
  const std::string job = control_->get("job", Deadline::in(kShortly));
  if (job != request.job_id)
    throw UsageError(
        "the job at {} is \"{}\", but this node was started with --job_id \"{}\"; is another job meeting there?",
        to_string(store_), printable(job), request.job_id);
  const std::string nodes = control_->get("nnodes", Deadline::in(kShortly));
  if (nodes != request.nodes_text())
    throw UsageError("the job at {} was started for {} nodes, but this node for {}; give the same --nnodes everywhere",
                     to_string(store_), printable(nodes), request.nodes_text());
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

void Meeting::take_number(bool newcomer, Deadline deadline) {
  const std::optional<int> wanted = hosting() ? 0 : seat_.node >= 0 ? std::optional(seat_.node) : std::nullopt;
  number_ = newcomer ? wait_for_number(*control_, {.name = name_, .wanted = wanted, .nodes = seat_.nodes}, deadline)
                     : claim_number(*control_, name_, wanted, seat_.nodes);
}

void Meeting::enter(const NodeInfo& info, const JobPast& past, Deadline deadline) try {
  if (!hosting()) compare_job(*request_);
  round_ = last_round(*control_);
  const bool newcomer = !hosting() && (round_ >= 0 || past.attempt > 0) && is_elastic(*control_);
  take_number(newcomer, deadline);
  serve_probe(seat_);
  Introduction self = introduce(*request_, info, name_);
  self.probe = own_probe_;
  self.attempt = past.attempt;
  self.restarts = past.restarts;
  if (newcomer) prepare_to_join(*control_, *token_, self, deadline);
  const FolderMark mark(self);
  control_->set(introduction_key(number_), to_json(self));
  if (hosting()) {
    adopt(gather_nodes(past, no_objection));
    publish_roster(*control_, ++round_, roster_);
  } else {
    adopt(await_roster(self, deadline));
  }
  if (roster_.attempt == 0) check_everyone();
  open_link();
} catch (const UsageError& error) {
  if (!hosting()) tell_refusal(*control_, host_name(), error.what());
  throw;
}

// The coordinator: which nodes make up the next attempt.
Roster Meeting::gather_nodes(const JobPast& past, const JobLink::Objection& objection) {
  const bool new_job = past.departure.empty();
  const ElasticRules rules = elastic_rules(*request_);
  return gather(*control_,
                {.seat = seat_,
                 .rules = rules,
                 .patience = new_job ? Millis(request_->join_timeout) : rules.timeout,
                 .expected = new_job ? rules.max : past.members,
                 .attempt = past.attempt,
                 .restarts = past.restarts,
                 .max_restart = request_->max_restart,
                 .departure = past.departure,
                 .objection = objection},
                *lost_);
}

// A node that comes when the others have just gone on without it asks them to gather again.
Roster Meeting::await_roster(const Introduction& self, Deadline deadline) {
  if (round_ >= 0) ask_to_gather(control_, round_, node_words(number_, self.info));
  for (;;) {
    Roster roster = read_roster(*control_, seat_, round_ + 1, deadline, no_objection);
    if (roster.over) throw PeerError("the job has ended meanwhile: {}", roster.over->reason);
    ++round_;
    if (names_this_node(roster)) return roster;
    ask_to_gather(control_, round_, node_words(number_, self.info));
  }
}

bool Meeting::names_this_node(const Roster& roster) const {
  return std::any_of(roster.nodes.begin(), roster.nodes.end(),
                     [this](const Introduction& node) { return node.name == name_; });
}

void Meeting::adopt(Roster roster) {
  nodes_.clear();
  names_.clear();
  probes_.clear();
  for (const Introduction& introduction : roster.nodes) {
    if (introduction.name == name_) node_ = static_cast<int>(nodes_.size());
    nodes_.push_back(introduction.info);
    names_.push_back(introduction.name);
    probes_.push_back(introduction.probe);
  }
  roster_ = std::move(roster);
}

void Meeting::check_everyone() {
  const Clearance clearance = check_each_other({*control_, *token_, roster_.nodes, node_, lost_.get()});
  if (!clearance.shared_log_dir) return;
  for (size_t i = 0; i < nodes_.size(); ++i) nodes_[i].log_dir += fmt::format("/node{}", i);
  if (!roster_.rules.on) return;
  Introduction self = roster_.nodes[static_cast<size_t>(node_)];
  self.info = nodes_[static_cast<size_t>(node_)];
  control_->set(introduction_key(number_), to_json(self));
}

void Meeting::farewell() {
  if (hosting()) link_->farewell(Deadline::in(kFarewell));
}

void Meeting::open_link() {
  const auto describe = [nodes = nodes_, names = names_](const std::string& name) -> std::optional<std::string> {
    for (size_t i = 0; i < names.size(); ++i)
      if (names[i] == name) return node_words(static_cast<int>(i), nodes[i]);
    return std::nullopt;  // not part of the job: refused, or too late
  };
  StoreLink::Options options{
      .store = control_,
      .nodes = static_cast<int>(nodes_.size()),
      .coordinator = fmt::format("node 0 ({}, {})", nodes_[0].host, to_string(store_)),
      .lost = hosting() ? lost_ : nullptr,
      .describe = describe,
      .attempt_timeout = request_->grace + RestartDelay::kMax + kToRestart,
  };
  if (rules().on && hosting() && directory_) options.revoked = [this] { return lost_lease(); };
  link_ = std::make_unique<StoreLink>(std::move(options));
}

}  // namespace trireme::launch
