// Answers the requests of admitted clients, and keeps those that wait. No socket, so it can be tested by itself.
//
//   StoreEngine engine(limit);
//   if (auto reply = engine.execute(client, request)) send(client, *reply);     // nothing: it waits
//   for (auto& [client, reply] : engine.take_answers()) send(client, reply);     // the clients that this request woke
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trireme/core/clock.h"
#include "trireme/core/deadline.h"
#include "trireme/store/table.h"
#include "trireme/store/wire.h"

namespace trireme::store {

/// Encoded bytes, shared because one value may go to thousands of waiting clients.
using Bytes = std::shared_ptr<const std::string>;
inline Bytes encoded(const wire::Message& message) {
  return std::make_shared<const std::string>(wire::encode(message));
}

/// Thread rule: one thread.
class StoreEngine {
 public:
  using Client = uint64_t;

  explicit StoreEngine(size_t max_bytes) : table_(max_bytes) {}

  static bool is_request(wire::Type type);
  /// The reply, or nothing when the client now waits for a key. Requires is_request() and !waits(client).
  std::optional<Bytes> execute(Client client, const wire::Message& request);
  /// Replies for clients that wait no more, because of execute() or expire().
  std::vector<std::pair<Client, Bytes>> take_answers() { return std::exchange(answers_, {}); }
  /// Ends the waits whose time is over.
  void expire();
  Deadline next_deadline() const;
  bool waits(Client client) const { return waiting_.contains(client); }
  /// The client is gone.
  void forget(Client client);

 private:
  struct Wait {
    std::string key;
    Deadline deadline;
  };

  wire::Message answer(const wire::Message& request);
  wire::Message answer_list(const std::string& prefix) const;
  void wait(Client client, const wire::Message& request);
  void wake(const std::string& key);

  Table table_;
  std::map<Client, Wait> waiting_;
  std::map<std::string, std::set<Client>> by_key_;
  std::set<std::pair<Clock::time_point, Client>> by_time_;
  std::vector<std::pair<Client, Bytes>> answers_;
};

}  // namespace trireme::store
