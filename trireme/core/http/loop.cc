#include "trireme/core/http/loop.h"

#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <iterator>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"

namespace trireme::http {
namespace {

constexpr Millis kLinger{1000};     // for the rest of a refused request; most clients stop at once
constexpr Millis kParting{250};     // for requests that are on their way when the server is told to stop
constexpr Millis kFairTime{1000};   // a request may take this long however full the server is
constexpr Millis kOutOfFiles{100};  // rest before the next accept when there are no descriptors left
constexpr size_t kFixed = 2;        // polled before the clients: the wake-up pipe and the listener

enum class Leaving { first, second, never };

using State = Connection::State;
using Io = Connection::Io;

/// A client whose request is at work has nothing to read: only its leaving is of interest.
short events_of(const Connection& client) {
  switch (client.state) {
    case State::working:
      return client.probed ? 0 : POLLRDHUP;
    case State::writing:
      return POLLOUT;
    default:
      return POLLIN;
  }
}

double seconds_since(Clock::time_point time) {
  return std::chrono::duration<double>(Clock::now() - time).count();
}

}  // namespace

Loop::Loop(const ServerOptions& options, UniqueFd listener, Handler handler, Observer observer)
    : options_(options),
      handler_(std::move(handler)),
      observer_(std::move(observer)),
      listener_(std::move(listener)),
      wake_(make_pipe()),
      workers_(options.workers, "the HTTP server's workers") {
  set_nonblocking(listener_.get());
  set_nonblocking(wake_.first.get());
  set_nonblocking(wake_.second.get());
}

void Loop::run() noexcept {
  try {
    while (turn()) {
    }
  } catch (const std::exception& error) {
    log_error("[http] the HTTP server stopped: {}", error.what());
  }
  clients_.clear();
  listener_.reset();
}

bool Loop::turn() {
  take_answers();
  expire();
  if (drain_asked_ && !draining_) begin_drain();
  if (stop_asked_ || (draining_ && all_answered())) return false;
  wait_for_events();
  std::array<char, 64> bytes;
  while (::read(wake_.first.get(), bytes.data(), bytes.size()) > 0) {
  }
  for (size_t i = 0; i < polled_ids_.size(); ++i)
    if (polled_[kFixed + i].revents != 0) serve(polled_ids_[i], polled_[kFixed + i].revents);
  if (polled_[1].revents != 0) accept_all();  // last: a client that has just sent something need not make room
  return true;
}

void Loop::wait_for_events() {
  polled_.clear();
  polled_ids_.clear();
  polled_.push_back({wake_.first.get(), POLLIN, 0});
  polled_.push_back({may_accept() ? listener_.get() : -1, POLLIN, 0});
  for (const auto& [id, client] : clients_) {
    if (client.has_left()) continue;  // it would wake us for ever
    polled_.push_back({client.fd.get(), events_of(client), 0});
    polled_ids_.push_back(id);
  }
  ::poll(polled_.data(), polled_.size(), next_deadline().poll_timeout());
}

Deadline Loop::next_deadline() const {
  Deadline next = accept_again_.passed() ? Deadline::never() : accept_again_;
  if (draining_ && !parting_.passed()) next = earlier(next, parting_);
  const bool full = clients_.size() >= options_.max_connections;
  for (const auto& [id, client] : clients_) {
    next = earlier(next, client.deadline);
    if (full && client.state == State::reading && !fair_end(client).passed()) next = earlier(next, fair_end(client));
  }
  return next;
}

/// From when on a full server may close a client that is sending a request, or taking an answer. Requires:
/// State::reading or State::writing, as the time is counted back from the deadline.
Deadline Loop::fair_end(const Connection& client) const {
  const auto limit = client.state == State::writing ? options_.write_timeout : options_.read_timeout;
  return Deadline::at(client.deadline.time() - limit + kFairTime);
}

// --- connections

/// Whether there is room for one more connection, or one that may be closed for it.
bool Loop::may_accept() const {
  if (!listener_ || !accept_again_.passed()) return false;
  return clients_.size() < options_.max_connections || first_to_leave() != clients_.end();
}

/// The connection that a full server closes first: the one that has been idle for the longest time, else the one that
/// has been sending a request for the longest. So slow senders cannot keep new clients out.
auto Loop::first_to_leave() const -> Clients::const_iterator {
  const auto rank = [&](const Connection& client) {
    if (client.state != State::reading) return Leaving::never;
    if (client.idle()) return Leaving::first;
    return fair_end(client).passed() ? Leaving::second : Leaving::never;
  };
  auto found = clients_.end();
  for (auto client = clients_.begin(); client != clients_.end(); ++client) {
    const Leaving leaving = rank(client->second);
    if (leaving == Leaving::never) continue;
    if (found == clients_.end() || leaving < rank(found->second) ||
        (leaving == rank(found->second) && client->second.deadline.time() < found->second.deadline.time()))
      found = client;
  }
  return found;
}

void Loop::accept_all() {
  while (may_accept()) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      if (clients_.size() >= options_.max_connections) drop(first_to_leave()->first);
      accept_one(std::move(socket));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != ECONNABORTED && errno != EINTR) {
      log_warning("[http] cannot accept a connection: {}; {} are open", errno_text(errno), clients_.size());
      accept_again_ = Deadline::in(kOutOfFiles);
    }
  }
}

void Loop::accept_one(UniqueFd socket) {
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  Connection& client = clients_.try_emplace(next_id_++, std::move(socket), options_.limits).first->second;
  client.deadline = Deadline::in(options_.idle_timeout);
  connections_ = clients_.size();
}

void Loop::drop(Id id) {
  const auto client = clients_.find(id);
  held_bytes_ -= client->second.counted;
  clients_.erase(client);
  connections_ = clients_.size();
}

void Loop::expire() {
  std::vector<Id> expired;
  for (const auto& [id, client] : clients_)
    if (client.deadline.passed()) expired.push_back(id);
  for (const Id id : expired) {
    Connection& client = clients_.at(id);
    const bool half_read = client.state == State::reading && client.parser.begun();
    const Response response = error_response(problem("request_timeout"), "the request did not arrive in time");
    if (!half_read || !refuse(id, client, response)) drop(id);
  }
}

// --- stopping

void Loop::begin_drain() {
  accept_all();  // connections made before now are served
  listener_.reset();
  std::vector<Id> ids;
  for (const auto& [id, client] : clients_)
    if (client.state == State::reading) ids.push_back(id);
  for (const Id id : ids) serve(id, POLLIN);  // as is what they have sent
  draining_ = true;
  parting_ = Deadline::in(kParting);
  for (auto& [id, client] : clients_) client.late = client.idle() && !client.fresh;
}

/// A request may be on its way on an idle connection: idle ones are read until the parting is over, and as long as
/// other requests are being answered.
bool Loop::all_answered() const {
  if (clients_.empty()) return true;
  return parting_.passed() &&
         std::all_of(clients_.begin(), clients_.end(), [](const auto& entry) { return entry.second.idle(); });
}

void Loop::drain() {
  drain_asked_ = true;
  wake();
}

void Loop::stop() {
  stop_asked_ = true;
  wake();
}

void Loop::wake() {
  const char byte = 0;
  [[maybe_unused]] const ssize_t written = ::write(wake_.second.get(), &byte, 1);  // full: it is awake already
}

Counts Loop::counts() const {
  return {.connections = connections_, .in_flight = in_flight_, .abandoned = abandoned_, .draining = drain_asked_};
}

// --- one connection. These return false when it must be dropped.

void Loop::serve(Id id, short events) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;  // dropped in this turn, for the memory of another
  Connection& client = found->second;
  bool open = true;
  if (client.state == State::reading)
    open = read_request(id, client);
  else if (client.state == State::writing)
    open = send_answer(id, client);
  else if (client.state == State::lingering)
    open = client.discard() != Io::ended;
  else
    watch(client, events);
  if (!open) drop(id);
}

/// Of a client whose request is at work. It stays in the list until the worker is done: its memory is in use as long.
void Loop::watch(Connection& client, short events) {
  if ((events & (POLLERR | POLLHUP)) == 0) return client.probe();
  *client.abandoned = true;
  ++abandoned_;
}

bool Loop::read_request(Id id, Connection& client) {
  const bool was_idle = client.idle();
  const Io io = client.read_some();
  if (io == Io::ended) return false;
  // Set once: a slow sender gains no time with each byte.
  if (was_idle && !client.idle()) client.deadline = Deadline::in(options_.read_timeout);
  return judge_request(id, client);
}

bool Loop::judge_request(Id id, Connection& client) {
  count_memory(client);
  if (client.parser.state() == Parser::State::refused) return refuse(id, client, client.parser.refusal());
  if (client.parser.begun()) make_memory(id);  // idle connections are exempt
  if (client.parser.begun() && held_bytes_ > options_.max_held_bytes)
    return refuse(id, client, error_response(problem("overloaded"), "too many bytes are being received; retry"));
  client.send_continue();
  if (client.parser.state() == Parser::State::complete) start_work(id, client);
  return true;
}

/// The connection that has been sending a request or taking an answer for the longest, and longer than is fair.
auto Loop::slowest_client(Id except) -> Clients::iterator {
  const auto is_slow = [&](const Connection& client) {
    const bool moves_bytes = client.state == State::writing || (client.state == State::reading && !client.idle());
    return moves_bytes && fair_end(client).passed();
  };
  auto found = clients_.end();
  for (auto client = clients_.begin(); client != clients_.end(); ++client) {
    if (client->first == except || !is_slow(client->second)) continue;
    if (found == clients_.end() || fair_end(client->second).time() < fair_end(found->second).time()) found = client;
  }
  return found;
}

/// Slow clients make room for a request that needs memory: else a few unfinished bodies, or answers that are not read,
/// would lock all others out until their timeout.
void Loop::make_memory(Id except) {
  while (held_bytes_ > options_.max_held_bytes) {
    const auto slowest = slowest_client(except);
    if (slowest == clients_.end()) return;
    const Response response = error_response(problem("overloaded"), "other requests need the memory; send faster");
    const bool in_answer = slowest->second.state == State::writing;  // nothing else can be said within it
    if (in_answer || !refuse(slowest->first, slowest->second, response)) drop(slowest->first);
  }
}

void Loop::start_work(Id id, Connection& client) {
  Request& request = client.parser.request();
  client.state = State::working;
  client.fresh = false;
  client.deadline = Deadline::never();  // the handler has its own
  client.arrived = request.arrived = Clock::now();
  client.keep_alive = request.keep_alive;
  client.without_body = request.method == "HEAD";
  request.late = client.late;
  request.abandoned = client.abandoned = std::make_shared<std::atomic<bool>>(false);
  ++in_flight_;
  request.server = counts();
  const bool full = with_workers_ >= static_cast<size_t>(options_.workers) + options_.max_waiting;
  if (options_.is_quick && options_.is_quick(request)) {
    own_answers_.emplace_back(id, handled(request));
  } else if (full) {
    const std::string message = fmt::format("{} requests wait already; retry", options_.max_waiting);
    own_answers_.emplace_back(id, error_response(problem("overloaded"), message));
  } else {
    hand_over(id, std::move(request));
  }
  if (!own_answers_.empty()) wake();
}

void Loop::hand_over(Id id, Request request) {
  ++with_workers_;
  workers_.run([this, id, request = std::move(request)]() mutable {
    Response response = request.client_has_left() ? error_response(problem("client_left"), "") : handled(request);
    {
      std::lock_guard lock(mutex_);
      answers_.emplace_back(id, std::move(response));
    }
    wake();
  });
}

Response Loop::handled(Request& request) const noexcept {
  try {
    return handler_(request);
  } catch (const std::exception& error) {
    log_error("[http] {} {}: {}", request.method, printable(request.path), error.what());
  } catch (...) {
    log_error("[http] {} {}: unknown exception", request.method, printable(request.path));
  }
  return error_response(problem("internal_error"), "the server failed; its log says why");
}

void Loop::take_answers() {
  Answers answers;
  {
    std::lock_guard lock(mutex_);
    answers.swap(answers_);
  }
  with_workers_ -= answers.size();
  std::move(own_answers_.begin(), own_answers_.end(), std::back_inserter(answers));
  own_answers_.clear();
  for (const auto& [id, response] : answers) {
    --in_flight_;
    Connection& client = clients_.at(id);  // a connection at work is never dropped
    if (!answer(id, client, response)) drop(id);
  }
}

bool Loop::refuse(Id id, Connection& client, const Response& response) {
  client.keep_alive = false;
  client.without_body = false;
  client.arrived = Clock::now();
  return answer(id, client, response);
}

bool Loop::answer(Id id, Connection& client, const Response& response) {
  if (observer_)
    observer_(client.has_left() ? problem("client_left").status : response.status, seconds_since(client.arrived));
  if (client.has_left()) {
    --abandoned_;
    return false;
  }
  if (drain_asked_) client.keep_alive = false;
  client.out = to_bytes(
      response, {.keep_alive = client.keep_alive, .without_body = client.without_body, .now = std::time(nullptr)});
  client.forget_request(options_.limits);  // its memory is free from here; `response` may have been in it
  client.written = client.sent_early;
  client.state = State::writing;
  client.deadline = Deadline::in(options_.write_timeout);
  count_memory(client);
  return send_answer(id, client);
}

bool Loop::send_answer(Id id, Connection& client) {
  const Io io = client.write_some();
  if (io != Io::more) return io == Io::blocked;
  if (client.keep_alive) return await_request(id, client);
  ::shutdown(client.fd.get(), SHUT_WR);
  client.state = State::lingering;
  client.deadline = Deadline::in(kLinger);
  return true;
}

bool Loop::await_request(Id id, Connection& client) {
  client.next_request(options_.limits);
  client.late = draining_;
  client.deadline = Deadline::in(client.idle() ? options_.idle_timeout : options_.read_timeout);
  return judge_request(id, client);
}

void Loop::count_memory(Connection& client) {
  held_bytes_ -= client.counted;
  client.counted = client.held();
  held_bytes_ += client.counted;
}

}  // namespace trireme::http
