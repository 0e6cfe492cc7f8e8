// The one thread of Server that touches sockets. Internal.
//
// Parser understands the bytes, Connection holds them, the workers answer. This file moves requests and answers
// between them and keeps limits and deadlines.
#pragma once

#include <poll.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "trireme/core/http/connection.h"
#include "trireme/core/http/server.h"
#include "trireme/core/thread_annotations.h"
#include "trireme/core/workers.h"

namespace trireme::http {

/// Thread rule: run() on one thread; drain(), stop() and counts() from any.
class Loop {
 public:
  Loop(const ServerOptions& options, UniqueFd listener, Handler handler, Observer observer);
  /// Returns after stop(), or after drain() when every request is answered. Throws nothing.
  void run() noexcept;
  void drain();
  void stop();
  Counts counts() const;

 private:
  using Id = uint64_t;
  using Clients = std::map<Id, Connection>;
  using Answers = std::vector<std::pair<Id, Response>>;

  bool turn();
  void wait_for_events();
  Deadline next_deadline() const;
  Deadline fair_end(const Connection& client) const;
  bool may_accept() const;
  Clients::const_iterator first_to_leave() const;
  Clients::iterator slowest_client(Id except);
  void accept_all();
  void accept_one(UniqueFd socket);
  void begin_drain();
  bool all_answered() const;

  void serve(Id id, short events);
  void watch(Connection& client, short events);
  bool read_request(Id id, Connection& client);
  bool judge_request(Id id, Connection& client);
  void make_memory(Id except);
  void start_work(Id id, Connection& client);
  void hand_over(Id id, Request request);
  Response handled(Request& request) const noexcept;
  void take_answers();
  bool answer(Id id, Connection& client, const Response& response);
  bool send_answer(Id id, Connection& client);
  bool refuse(Id id, Connection& client, const Response& response);
  bool await_request(Id id, Connection& client);
  void expire();
  void count_memory(Connection& client);
  void drop(Id id);
  void wake();

  const ServerOptions options_;
  const Handler handler_;
  const Observer observer_;
  UniqueFd listener_;
  FdPair wake_;
  Clients clients_;
  Id next_id_ = 0;
  size_t held_bytes_ = 0;
  size_t with_workers_ = 0;  // requests that run or wait
  bool draining_ = false;
  Deadline parting_ = Deadline::at({});       // the earliest end of a drain
  Deadline accept_again_ = Deadline::at({});  // not before: descriptors had run out
  std::vector<pollfd> polled_;
  std::vector<Id> polled_ids_;  // of polled_, after the first two
  Answers own_answers_;         // made without a worker; sent in the next turn, as sending them here would recurse

  std::atomic<bool> drain_asked_{false};
  std::atomic<bool> stop_asked_{false};
  std::atomic<size_t> connections_{0};
  std::atomic<size_t> in_flight_{0};
  std::atomic<size_t> abandoned_{0};
  Mutex mutex_;
  Answers answers_ TRIREME_GUARDED_BY(mutex_);  // the workers' to the loop
  Workers workers_;                             // last: its threads use the others
};

}  // namespace trireme::http
