// The one thread of TcpStoreServer: accepts, reads, answers and closes. Internal.
//
// Three helpers do the thinking: Gatekeeper judges newcomers, StoreEngine answers requests, Connection holds bytes.
// This file only moves messages between them and the sockets, and keeps the limits and deadlines.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/clock.h"
#include "trireme/core/deadline.h"
#include "trireme/core/log.h"
#include "trireme/store/connection.h"
#include "trireme/store/engine.h"
#include "trireme/store/gatekeeper.h"
#include "trireme/store/tcp_server.h"

namespace trireme::store {

/// Warnings that outsiders can provoke: at most one line a second, which says how many were left out before it.
/// Thread rule: one thread.
class RateLimitedLog {
 public:
  explicit RateLimitedLog(Millis interval = Millis(1000)) : interval_(interval) {}
  ~RateLimitedLog() {
    if (left_out_ > 0) log_warning("[store] {} more such warnings", left_out_);
  }

  void warn(std::string_view message) {
    if (!pause_.passed()) {
      ++left_out_;
      return;
    }
    log_warning("[store] {}{}", message, left_out_ ? fmt::format(" ({} more such warnings before)", left_out_) : "");
    left_out_ = 0;
    pause_ = Deadline::in(interval_);
  }

 private:
  const Millis interval_;
  Deadline pause_ = Deadline::in(Millis(0));
  uint64_t left_out_ = 0;
};

/// Thread rule: run() on one thread; stop() and counters() from any.
class ServerLoop {
 public:
  ServerLoop(UniqueFd listener, TcpStoreServer::Options options);
  /// Returns after stop(). Throws nothing.
  void run() noexcept;
  void stop();
  TcpStoreServer::Counters counters() const;

 private:
  using Id = StoreEngine::Client;

  void turn();
  void wait_for_events();
  Deadline next_deadline() const;
  void serve(Id id, short events);
  void serve_or_throw(Id id, short events);
  bool read_messages(Id id, Connection& client);
  void await_rest(Connection& client, size_t message_size);
  bool handle(Id id, Connection& client, const wire::Message& message);
  bool greet(Connection& client, const wire::Message& message);
  bool admit(Connection& client, Verdict verdict);
  bool dismiss(Connection& client, Verdict verdict);
  bool answer(Id id, Connection& client, const wire::Message& message);
  bool send(Connection& client, Bytes bytes);
  void deliver_answers();
  void expire();

  void accept_clients();
  bool accept_one();
  bool make_room();
  bool is_expected(const std::string& ip) const;
  std::optional<Id> oldest_stranger() const;
  void close_stranger(Id id);
  void limit_address(const std::string& ip);
  void welcome_socket(UniqueFd socket);
  void drop(Id id);
  void notify(const std::function<void(const std::string&)>& callback, const std::string& name);

  const TcpStoreServer::Options options_;
  UniqueFd listener_;
  FdPair wake_;
  std::atomic<bool> stopping_ = false;

  Gatekeeper gatekeeper_;
  StoreEngine engine_;
  std::map<Id, std::unique_ptr<Connection>> clients_;
  size_t newcomers_ = 0;                 // clients that are not open
  std::map<std::string, int> admitted_;  // open clients by address
  Id next_id_ = 1;
  Deadline accept_after_ = Deadline::in(Millis(0));  // accepting rests until then
  std::vector<pollfd> polled_;
  std::vector<Id> polled_ids_;
  RateLimitedLog log_;

  struct {
    std::atomic<uint64_t> rejected_tokens{0}, refused_enrolments{0}, refused_connections{0}, bad_messages{0},
        timeouts{0}, slow_readers{0};
  } counted_;
};

}  // namespace trireme::store
