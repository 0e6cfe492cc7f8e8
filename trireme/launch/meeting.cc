#include "trireme/launch/meeting.h"

#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/launch/job_token.h"
#include "trireme/proc/signals.h"
#include "trireme/store/etcd_store.h"

namespace trireme::launch {

using nlohmann::json;

namespace {

constexpr auto kCheckTime = std::chrono::seconds(60);
constexpr auto kReportEvery = std::chrono::seconds(10);
constexpr auto kFarewell = std::chrono::seconds(2);
constexpr auto kRequestTime = std::chrono::seconds(5);  // for the coordinator's answer to a short question
constexpr double kSkewWarning = 1000;                   // ms

std::string numbered(const std::string& name, int number) {
  return fmt::format("{}/{}", name, number);
}

std::string unique_name() {
  return fmt::format("{}/{}/{}", host_name(), ::getpid(), to_hex(random_bytes(4)));
}

// Calls `attempt` with ever new short deadlines until it succeeds; after each in vain says `waiting()`.
template <typename Attempt, typename Waiting>
auto patiently(Deadline deadline, Attempt attempt, Waiting waiting) {
  for (;;) {
    const Deadline slice = earlier(deadline, Deadline::in(kReportEvery));
    try {
      return attempt(slice);
    } catch (const PeerError& error) {
      if (!slice.passed()) throw;  // refused, not just late
      if (deadline.passed()) throw PeerError("{}; gave up after --join_timeout", waiting(error));
      log_info("{}", waiting(error));
    }
  }
}

std::string missing_nodes(Store& store, const Seat& seat) {
  std::vector<std::string> missing;
  for (int i = 0; i < seat.nodes; ++i) {
    if (store.try_get(numbered("node", i))) continue;
    const auto known = static_cast<size_t>(i) < seat.peers.size();
    missing.push_back(known ? fmt::format("node {} ({})", i, seat.peers[static_cast<size_t>(i)])
                            : fmt::format("node {}", i));
  }
  return fmt::format("waiting for {} of {} nodes: {} (started there? same --job_id? ping and firewall in order?)",
                     missing.size(), seat.nodes, join(missing, ", "));
}

TcpStoreServer::Enrolment enrolment_for(const Seat& seat) {
  TcpStoreServer::Enrolment enrolment;
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
    return enrol(coordinator, deadline);
  } catch (const PeerError& error) {
    if (deadline.passed()) throw;
    throw PeerError(
        "{}. If another job is meeting at {}, wait for it to end or choose another --start_port or --master",
        error.what(), to_string(coordinator));
  }
}

json as_json(const std::vector<Reach>& reaches) {
  json list = json::array();
  for (const Reach& reach : reaches) list.push_back({{"node", reach.node}, {"error", printable(reach.error)}});
  return list;
}

// With many nodes not every pair is tried: the coordinator and the next few neighbours tell enough.
bool should_try(int self, int other, int nodes) {
  constexpr int kAllPairs = 32;
  if (self == other) return false;
  return nodes <= kAllPairs || other == 0 || (other - self + nodes) % nodes <= 2;
}

std::filesystem::path marker_path(const std::string& log_dir, const std::string& name) {
  return std::filesystem::path(log_dir) / (".trireme-" + to_hex(sha256(name)).substr(0, 16));
}

void write_marker(const std::filesystem::path& path) {
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  try {
    write_file_atomically(path, "");
  } catch (const SystemError&) {
    // A log folder that cannot be written is reported when the logs are opened.
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
  const proc::SignalsBlocked in_the_thread;
  meeting->server_ =
      std::make_unique<TcpStoreServer>(listen_tcp(self.address, 0), TcpStoreServer::Options{.token = *meeting->token_});
  meeting->store_ = {self.address, meeting->server_->port()};
  meeting->link_ = std::make_unique<SoloLink>();
  return meeting;
}

std::unique_ptr<Meeting> Meeting::with_others(const Request& request, const Seat& original, const NodeInfo& self,
                                              const std::optional<Token>& given) {
  std::unique_ptr<Meeting> meeting(new Meeting);
  const Deadline deadline = Deadline::in(request.join_timeout);
  Seat seat = original;
  meeting->name_ = unique_name();
  meeting->lost_ = std::make_shared<LostNodes>();
  meeting->max_restart_ = request.max_restart;
  meeting->host_or_join(request, seat, given);
  meeting->claim_number(seat, seat.nodes);
  meeting->serve_probe(seat);
  Introduction introduction = introduce(request, self, meeting->name_);
  introduction.probe = meeting->probes_.at(0);
  const std::vector<Introduction> roster = meeting->gather(request, seat, introduction, deadline);
  meeting->warn_of_differences(roster);
  meeting->check_each_other(roster);
  meeting->open_link();
  return meeting;
}

// --- finding the coordinator, or becoming it
// --------------------------------------------------------------------------

void Meeting::host_or_join(const Request& request, Seat& seat, const std::optional<Token>& given) {
  const std::optional<Token> token = given ? given : configured_token();
  const Deadline deadline = Deadline::in(request.join_timeout);
  if (request.etcd && !seat.meeting) {
    directory_ = std::make_unique<EtcdStore>(EtcdStore::Options{.server = *request.etcd,
                                                                .prefix = fmt::format("trireme/{}/", request.job_id),
                                                                .lease_ttl = std::chrono::seconds(10)});
    UniqueFd listener;
    if (seat.may_host) {
      listener = listen_tcp(seat.address, 0);
      const std::string mine = to_string({seat.address, port_of(local_address(listener.get()))});
      if (directory_->compare_set("coordinator", "", mine) == mine) {
        seat.meeting = parse_endpoint(mine, "own address");
        return host(request, seat, std::move(listener), token);
      }
    }
    const std::string found = patiently(
        deadline, [&](Deadline slice) { return directory_->get("coordinator", slice); },
        [&](const PeerError&) {
          return fmt::format("waiting for node 0 to register in etcd at {}", to_string(*request.etcd));
        });
    return connect_to(request, parse_endpoint(found, "the coordinator's address in etcd"), token, deadline);
  }
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

void Meeting::host(const Request& request, const Seat& seat, UniqueFd listener, const std::optional<Token>& token) {
  token_ = token ? *token : Token::random();
  TcpStoreServer::Options options{.token = *token_};
  if (!token) options.enrolment = enrolment_for(seat);
  options.on_disconnect = [lost = lost_](const std::string& name) { lost->add(name); };
  const proc::SignalsBlocked in_the_thread;
  server_ = std::make_unique<TcpStoreServer>(std::move(listener), std::move(options));
  store_ = {seat.address, server_->port()};
  if (seat.peers.empty() && !request.master && !request.etcd)
    log_info("this is node 0; on the other nodes run: trireme launch --master {} --nnodes {} …", to_string(store_),
             seat.nodes);
  if (!token)
    log_warning(
        "nodes are not authenticated: no token file (TRIREME_TOKEN_FILE or ~/.config/trireme/token); only {} may join, "
        "once each",
        seat.peers.empty() ? fmt::format("{} nodes", seat.nodes - 1) : "the listed addresses");
  control_ = TcpStore::connect({.server = store_, .token = *token_, .request_timeout = kRequestTime},
                               Deadline::in(kReportEvery));
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
        return TcpStore::connect(
            {.server = coordinator, .token = *token_, .name = name_, .request_timeout = kRequestTime}, slice);
      },
      waiting);
  store_ = coordinator;
  compare_job(request);
}

void Meeting::compare_job(const Request& request) {
  const std::string job = control_->get("job", Deadline::in(kReportEvery));
  if (job != request.job_id)
    throw UsageError(
        "the job at {} is \"{}\", but this node was started with --job_id \"{}\"; is another job meeting there?",
        to_string(store_), printable(job), request.job_id);
}

// --- getting a number and getting to know each other
// ------------------------------------------------------------------

void Meeting::claim_number(const Seat& seat, int nodes) {
  if (seat.node >= 0 || hosting()) {
    const int wanted = hosting() ? 0 : seat.node;
    const std::string owner = control_->compare_set(numbered("claim", wanted), "", name_);
    if (owner != name_)
      throw UsageError("node {} of this job is already taken by {}; each node needs its own --rank or --ips entry",
                       wanted, printable(owner));
    node_ = wanted;
    return;
  }
  for (int i = 1; i < nodes; ++i) {
    if (control_->compare_set(numbered("claim", i), "", name_) != name_) continue;
    node_ = i;
    return;
  }
  throw UsageError("the job at {} has its {} nodes already; is another job meeting there, or --nnodes too small?",
                   to_string(store_), nodes);
}

void Meeting::serve_probe(const Seat& seat) {
  if (hosting()) {
    probes_ = {store_};
    return;
  }
  const proc::SignalsBlocked in_the_thread;
  probe_ = std::make_unique<TcpStoreServer>(listen_tcp(seat.address, 0), TcpStoreServer::Options{.token = *token_});
  probes_ = {Endpoint{seat.address, probe_->port()}};
}

std::vector<Introduction> Meeting::gather(const Request& request, const Seat& seat, const Introduction& self,
                                          Deadline deadline) {
  if (hosting()) write_marker(marker_path(self.info.log_dir, name_));
  control_->set(numbered("node", node_), to_json(self));
  const auto waiting = [&](const PeerError&) { return missing_nodes(*control_, seat); };
  if (hosting()) {
    json roster{{"nodes", json::array()}, {"max_restart", request.max_restart}};
    for (int i = 0; i < seat.nodes; ++i)
      roster["nodes"].push_back(patiently(
          deadline, [&](Deadline slice) { return control_->get(numbered("node", i), slice); }, waiting));
    control_->set("roster", roster.dump());
  }
  const json roster = json::parse(patiently(
      deadline, [&](Deadline slice) { return control_->get("roster", slice); }, waiting));
  max_restart_ = roster.at("max_restart").get<int>();
  std::vector<Introduction> introductions;
  probes_.clear();
  for (const auto& text : roster.at("nodes")) {
    introductions.push_back(introduction_from_json(text.get<std::string>()));
    nodes_.push_back(introductions.back().info);
    names_.push_back(introductions.back().name);
    probes_.push_back(introductions.back().probe);
  }
  return introductions;
}

void Meeting::warn_of_differences(const std::vector<Introduction>& roster) const {
  const auto self = static_cast<size_t>(node_);
  for (size_t i = 1; i < roster.size(); ++i)
    if (hosting() || i == self)
      for (const std::string& line : differences(roster[0], roster[i])) log_warning("nodes differ: {}", line);
}

// --- checking each other
// ----------------------------------------------------------------------------------------------

void Meeting::check_each_other(const std::vector<Introduction>& roster) {
  std::vector<Reach> unreachable;
  const int nodes = static_cast<int>(roster.size());
  for (int i = 0; i < nodes; ++i) {
    if (!should_try(node_, i, nodes)) continue;
    const Reach reach = reach_node(i, probes_[static_cast<size_t>(i)], *token_);
    if (!reach.error.empty())
      unreachable.push_back(reach);
    else
      log_debug("node {} ({}): round trip {:.3f} ms, clock {:+.1f} ms", i, nodes_[static_cast<size_t>(i)].address,
                reach.round_trip_ms, reach.clock_skew_ms);
    if (std::abs(reach.clock_skew_ms) > kSkewWarning)
      log_warning(
          "the clock of node {} ({}) differs from this one's by {:.1f} s; time stamps in logs will not match (see: "
          "timedatectl)",
          i, nodes_[static_cast<size_t>(i)].host, reach.clock_skew_ms / 1000);
  }
  const auto marker = marker_path(nodes_[static_cast<size_t>(node_)].log_dir, names_[0]);
  std::error_code ignored;
  const bool shared_logs = !hosting() && std::filesystem::exists(marker, ignored);
  control_->set(numbered("check", node_),
                json{{"unreachable", as_json(unreachable)}, {"shared_logs", shared_logs}}.dump());
  const Deadline deadline = Deadline::in(kCheckTime);
  if (hosting()) {
    json go{{"problems", json::array()}, {"folder_per_node", false}};
    for (int i = 0; i < nodes; ++i) {
      const json check = json::parse(control_->get(numbered("check", i), deadline));
      if (check.at("shared_logs").get<bool>()) go["folder_per_node"] = true;
      for (const auto& reach : check.at("unreachable"))
        go["problems"].push_back(fmt::format("node {} ({}) cannot reach node {} ({}): {}", i,
                                             nodes_[static_cast<size_t>(i)].host, reach.at("node").get<int>(),
                                             nodes_.at(reach.at("node").get<size_t>()).address,
                                             reach.at("error").get<std::string>()));
    }
    control_->set("go", go.dump());
    std::filesystem::remove(marker, ignored);
  }
  const json go = json::parse(control_->get("go", deadline));
  std::vector<std::string> problems;
  for (const auto& problem : go.at("problems")) problems.push_back(problem.get<std::string>());
  if (!problems.empty()) throw PeerError("{}", join(problems, "\n"));
  if (go.at("folder_per_node").get<bool>())
    for (size_t i = 0; i < nodes_.size(); ++i) nodes_[i].log_dir += fmt::format("/node{}", i);
}

void Meeting::farewell() {
  if (hosting()) link_->farewell(Deadline::in(kFarewell));
}

void Meeting::open_link() {
  const auto describe = [nodes = nodes_, names = names_](const std::string& name) -> std::optional<std::string> {
    for (size_t i = 0; i < names.size(); ++i)
      if (names[i] == name) return fmt::format("node {} ({}, {})", i, nodes[i].host, nodes[i].address);
    return std::nullopt;  // it never was part of the job: refused, or too late
  };
  link_ = std::make_unique<StoreLink>(StoreLink::Options{
      .store = control_,
      .nodes = static_cast<int>(nodes_.size()),
      .coordinator = fmt::format("node 0 ({}, {})", nodes_[0].host, to_string(store_)),
      .lost = hosting() ? lost_ : nullptr,
      .describe = describe,
  });
}

}  // namespace trireme::launch
