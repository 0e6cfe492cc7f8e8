#include "trireme/store/server_loop.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::store {
namespace {

using wire::Message;
using wire::Status;
using wire::Type;

constexpr Millis kAcceptRest{100};  // after the kernel refused a descriptor
constexpr int kAcceptsPerTurn = 64;
constexpr size_t kMiB = 1u << 20;

}  // namespace

ServerLoop::ServerLoop(UniqueFd listener, TcpStoreServer::Options options)
    : options_(std::move(options)),
      listener_(std::move(listener)),
      wake_(make_pipe()),
      gatekeeper_(options_.token, options_.enrolment),
      engine_(options_.max_bytes) {
  set_nonblocking(listener_.get());
  set_nonblocking(wake_.second.get());
}

void ServerLoop::stop() {
  stopping_ = true;
  write_all(wake_.second.get(), "x");
}

TcpStoreServer::Counters ServerLoop::counters() const {
  return {.rejected_tokens = counted_.rejected_tokens,
          .refused_enrolments = counted_.refused_enrolments,
          .refused_connections = counted_.refused_connections,
          .bad_messages = counted_.bad_messages,
          .timeouts = counted_.timeouts,
          .slow_readers = counted_.slow_readers};
}

void ServerLoop::run() noexcept {
  while (!stopping_) {
    try {
      turn();
    } catch (const std::exception& error) {  // out of memory, most likely: go on after a rest, which stop() ends
      pollfd wake{wake_.first.get(), POLLIN, 0};
      ::poll(&wake, 1, static_cast<int>(kAcceptRest.count()));
      try {
        log_.warn(error.what());
      } catch (...) {  // a log line is not worth the server
      }
    }
  }
  clients_.clear();
}

void ServerLoop::turn() {
  wait_for_events();
  if (polled_[1].revents) accept_clients();
  for (size_t i = 0; i < polled_ids_.size(); ++i)
    if (polled_[i + 2].revents) serve(polled_ids_[i], polled_[i + 2].revents);
  expire();
}

void ServerLoop::wait_for_events() {
  polled_.assign(1, {wake_.first.get(), POLLIN, 0});
  polled_.push_back({accept_after_.passed() ? listener_.get() : -1, POLLIN, 0});
  polled_ids_.clear();
  for (const auto& [id, client] : clients_) {
    polled_ids_.push_back(id);
    const short events = client->unsent() > 0 ? POLLIN | POLLOUT : POLLIN;
    polled_.push_back({client->socket(), events, 0});
  }
  if (::poll(polled_.data(), polled_.size(), next_deadline().poll_timeout()) <= 0)
    for (pollfd& entry : polled_) entry.revents = 0;
}

Deadline ServerLoop::next_deadline() const {
  Deadline next = engine_.next_deadline();
  if (!accept_after_.passed()) next = earlier(next, accept_after_);
  for (const auto& [id, client] : clients_) next = earlier(next, client->deadline());
  return next;
}

// An error that one client causes closes that client only.
void ServerLoop::serve(Id id, short events) {
  try {
    serve_or_throw(id, events);
  } catch (const std::exception& error) {
    ++counted_.bad_messages;
    log_.warn(fmt::format("closing a client: {}", error.what()));
    drop(id);
  }
}

void ServerLoop::serve_or_throw(Id id, short events) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;  // dropped earlier in this turn
  Connection& client = *found->second;
  if ((events & POLLOUT) && !client.flush()) return drop(id);
  if (client.state == Connection::State::closing && client.unsent() == 0) return drop(id);
  if (!(events & ~POLLOUT)) return;
  const bool alive = client.receive();
  // What came before the end of the stream still counts: a client may set a key and leave.
  if (!read_messages(id, client)) return drop(id);
  if (alive) return;
  if (client.state == Connection::State::open && client.unread() > 0)
    log_.warn(fmt::format("{} \"{}\" left in the middle of a message", client.ip, printable(client.name)));
  drop(id);
}

bool ServerLoop::read_messages(Id id, Connection& client) {
  while (client.state != Connection::State::closing) {
    wire::Decoded next = client.next();
    if (next.status == Status::bad) {
      ++counted_.bad_messages;
      log_.warn(fmt::format("closing {}: bad message: {}", client.ip, next.error));
      return false;
    }
    if (next.status == Status::incomplete) {
      await_rest(client, next.size);
      return true;
    }
    if (!handle(id, client, next.message)) return false;
  }
  return true;
}

void ServerLoop::await_rest(Connection& client, size_t message_size) {
  if (client.state != Connection::State::open || client.unread() == 0) return;
  if (!client.message_since) client.message_since = Clock::now();
  const auto allowance = options_.message_timeout + std::chrono::seconds(message_size / kMiB);
  client.set_deadline(Deadline::at(*client.message_since + allowance));
}

bool ServerLoop::handle(Id id, Connection& client, const Message& message) {
  if (client.state == Connection::State::greeting) return greet(client, message);
  client.message_since.reset();
  client.set_deadline(Deadline::never());
  if (StoreEngine::is_request(message.type) && !engine_.waits(id)) return answer(id, client, message);
  ++counted_.bad_messages;
  log_.warn(fmt::format("closing {}: message type {} out of turn", client.ip, static_cast<int>(message.type)));
  return false;
}

bool ServerLoop::greet(Connection& client, const Message& message) {
  Verdict verdict = gatekeeper_.judge(message, {.nonce = client.nonce, .ip = client.ip});
  if (verdict.kind == Verdict::Kind::admitted) return admit(client, std::move(verdict));
  return dismiss(client, std::move(verdict));
}

bool ServerLoop::admit(Connection& client, Verdict verdict) {
  client.state = Connection::State::open;
  --newcomers_;
  ++admitted_[client.ip];
  client.name = std::move(verdict.name);
  client.set_deadline(Deadline::never());
  accept_after_ = Deadline::in(Millis(0));  // there may be room for another newcomer
  if (!send(client, encoded(verdict.reply))) return false;
  client.seal_with(verdict.keys);
  if (!client.name.empty()) notify(options_.on_connect, client.name);
  return true;
}

bool ServerLoop::dismiss(Connection& client, Verdict verdict) {
  switch (verdict.kind) {
    case Verdict::Kind::wrong_token:
      ++counted_.rejected_tokens;
      log_.warn(fmt::format("closing {}: wrong job token", client.ip));
      break;
    case Verdict::Kind::not_enrolled:
      ++counted_.refused_enrolments;
      log_.warn(fmt::format("refusing {}: {}", client.ip, verdict.reply.parts[0]));
      break;
    case Verdict::Kind::enrolled:
      break;
    default:
      ++counted_.bad_messages;
      log_.warn(fmt::format("closing {}: it did not begin with a greeting", client.ip));
      return false;
  }
  client.state = Connection::State::closing;
  return send(client, encoded(verdict.reply)) && client.unsent() > 0;
}

bool ServerLoop::answer(Id id, Connection& client, const Message& message) {
  auto reply = engine_.execute(id, message);
  const bool alive = !reply || send(client, *std::move(reply));
  deliver_answers();
  return alive;
}

bool ServerLoop::send(Connection& client, Bytes bytes) {
  if (client.unsent() > options_.max_output) {
    ++counted_.slow_readers;
    log_.warn(fmt::format("closing {} \"{}\": it asks but does not read, {} bytes wait for it, the limit is {}",
                          client.ip, printable(client.name), client.unsent(), options_.max_output));
    return false;
  }
  client.queue(std::move(bytes));
  return client.flush();
}

// The clients that are answered here were waiting, so none of them is the one whose request is being handled.
void ServerLoop::deliver_answers() {
  for (auto& [id, bytes] : engine_.take_answers()) {
    const auto found = clients_.find(id);
    if (found != clients_.end() && !send(*found->second, std::move(bytes))) drop(id);
  }
}

void ServerLoop::expire() {
  engine_.expire();
  deliver_answers();
  std::vector<Id> late;
  for (const auto& [id, client] : clients_)
    if (client->deadline().passed()) late.push_back(id);
  for (const Id id : late) {
    ++counted_.timeouts;
    log_.warn(fmt::format("closing {}: its {} took too long", clients_.at(id)->ip,
                          clients_.at(id)->state == Connection::State::open ? "message" : "handshake"));
    drop(id);
  }
}

void ServerLoop::accept_clients() {
  for (int i = 0; i < kAcceptsPerTurn && make_room() && accept_one(); ++i) {
  }
}

bool ServerLoop::accept_one() {
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  const int error = errno;
  if (socket) {
    welcome_socket(std::move(socket));
    return true;
  }
  if (error == EAGAIN || error == EWOULDBLOCK) return false;
  if (error == EINTR || error == ECONNABORTED) return true;
  accept_after_ = Deadline::in(kAcceptRest);  // out of descriptors: the listener would stay readable and spin the loop
  log_.warn(fmt::format("cannot accept a connection: {}; {} clients are connected, raise ulimit -n?", errno_text(error),
                        clients_.size()));
  return false;
}

bool ServerLoop::is_expected(const std::string& ip) const {
  return options_.expected_ips.contains(ip) || admitted_.contains(ip);
}

// Of the address with the most newcomers, unless it is expected.
std::optional<ServerLoop::Id> ServerLoop::oldest_stranger() const {
  std::map<std::string, std::pair<int, Id>> crowds;  // how many, and the oldest: ids grow
  for (const auto& [id, client] : clients_)
    if (client->state != Connection::State::open && !is_expected(client->ip))
      ++crowds.try_emplace(client->ip, 0, id).first->second.first;
  const auto largest = std::max_element(crowds.begin(), crowds.end(),
                                        [](const auto& a, const auto& b) { return a.second.first < b.second.first; });
  if (largest == crowds.end()) return std::nullopt;
  return largest->second.second;
}

void ServerLoop::close_stranger(Id id) {
  ++counted_.timeouts;
  log_.warn(fmt::format("too many connections that do not greet ({} of at most {}): closing the oldest of {}",
                        newcomers_, options_.max_unauthenticated, clients_.at(id)->ip));
  drop(id);
}

// Slow newcomers must not keep others out, and a burst of good ones must not be refused. When all places are taken, a
// stranger is closed, whatever its age. Where there is none, a newcomer that has had ample time is closed, else the new
// connections wait in the kernel's queue.
bool ServerLoop::make_room() {
  if (newcomers_ < options_.max_unauthenticated) return true;
  if (const auto stranger = oldest_stranger()) {
    close_stranger(*stranger);
    return true;
  }
  const auto ample = options_.handshake_timeout / 5;
  for (const auto& [id, client] : clients_) {  // ids grow, so the first is the oldest
    if (client->state == Connection::State::open) continue;
    if (Deadline leaves = Deadline::at(client->since + ample); !leaves.passed()) {
      accept_after_ = leaves;
      return false;
    }
    close_stranger(id);
    return true;
  }
  return true;
}

// The oldest connection of an unexpected address gives way to its newest.
void ServerLoop::limit_address(const std::string& ip) {
  if (is_expected(ip)) return;
  size_t count = 0;
  std::optional<Id> oldest;
  for (const auto& [id, client] : clients_) {
    if (client->state == Connection::State::open || client->ip != ip) continue;
    if (!oldest) oldest = id;
    ++count;
  }
  if (oldest && count >= std::max<size_t>(options_.max_unauthenticated / 4, 1)) close_stranger(*oldest);
}

void ServerLoop::welcome_socket(UniqueFd socket) {
  if (clients_.size() >= options_.max_connections) {
    ++counted_.refused_connections;
    const std::string reason = fmt::format("the store has {} clients, its limit", clients_.size());
    const std::string bytes = wire::encode({.type = Type::refuse, .parts = {reason}});
    (void)::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return log_.warn(fmt::format("refusing a connection: {}", reason));
  }
  tune_control_socket(socket.get(), options_.link_timeout);
  SocketAddress peer;
  peer.length = sizeof peer.storage;
  if (::getpeername(socket.get(), peer.get(), &peer.length) != 0) return;  // already gone
  limit_address(ip_text(peer));
  auto owner = std::make_unique<Connection>(std::move(socket), ip_text(peer), Deadline::in(options_.handshake_timeout));
  const Id id = next_id_++;
  const auto& client = clients_.emplace(id, std::move(owner)).first->second;
  ++newcomers_;
  if (!send(*client, encoded({.type = Type::challenge, .parts = {client->nonce}}))) drop(id);
}

void ServerLoop::drop(Id id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  const std::unique_ptr<Connection> client = std::move(found->second);
  clients_.erase(found);
  engine_.forget(id);
  accept_after_ = Deadline::in(Millis(0));
  if (client->state != Connection::State::open) {
    --newcomers_;
    return;
  }
  if (--admitted_[client->ip] == 0) admitted_.erase(client->ip);
  if (!client->name.empty()) {
    gatekeeper_.left(client->name, client->ip);
    notify(options_.on_disconnect, client->name);
  }
}

void ServerLoop::notify(const std::function<void(const std::string&)>& callback, const std::string& name) {
  if (!callback) return;
  try {
    callback(name);
  } catch (const std::exception& error) {
    log_error("[store] the callback for \"{}\" failed: {}", printable(name), error.what());
  } catch (...) {
    log_error("[store] the callback for \"{}\" failed", printable(name));
  }
}

}  // namespace trireme::store
