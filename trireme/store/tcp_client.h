// A process's side of the launcher's store.
//
//   auto store = TcpStore::connect({.server = {"node1", 6069}, .token = token, .name = "rank 3"}, Deadline::in(10s));
//   store->add("arrived", 1);
//   std::string plan = store->get("plan", Deadline::in(30s));
//
// Quick requests share one connection; each waiting get() has one of its own, so it delays no other request. A store
// whose first connection has failed stays lost: every call throws the same PeerError, because the server has reported
// this client as gone and a silent return would contradict that. Connect again to continue.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trireme/core/clock.h"
#include "trireme/core/net.h"
#include "trireme/core/thread_annotations.h"
#include "trireme/core/token.h"
#include "trireme/store/store.h"

namespace trireme::store {

class Channel;
namespace wire {
struct Message;
}

/// list() is a UsageError when its answer would exceed 64 MiB.
/// Thread rule: every method may be called from several threads; the destructor only when no call is under way.
class TcpStore : public Store {
 public:
  struct Options {
    Endpoint server;
    Token token;
    std::string name{};  ///< who this is, for the server's on_connect and on_disconnect: "node 1"
    Clock::duration request_timeout = std::chrono::seconds(30);  ///< a server that answers later is lost
    Millis link_timeout = kLinkTimeout;                          ///< and so is one whose machine is silent for so long
  };

  /// Tries until the deadline, since the server may start later than its clients. PeerError: unreachable, or it refused
  /// (another job's token, too many connections), or it could not prove to know the token itself.
  static std::unique_ptr<TcpStore> connect(Options options, Deadline deadline);
  ~TcpStore() override;

  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  std::optional<std::string> try_get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t amount) override;
  std::string compare_set(const std::string& key, std::string_view expected, std::string_view desired) override;
  bool remove(const std::string& key) override;
  std::map<std::string, std::string> list(const std::string& prefix) override;

  /// Sends `payload_bytes` (up to kMaxValue) to the server and back; returns how long that took.
  Clock::duration ping(size_t payload_bytes, Deadline deadline);
  /// The server's wall clock, milliseconds since 1970.
  int64_t server_time_ms();

 private:
  explicit TcpStore(Options options);
  wire::Message request(const wire::Message& message);
  void check_not_lost();
  std::unique_ptr<Channel> take_idle();
  std::unique_ptr<Channel> borrow(Deadline deadline);
  void give_back(std::unique_ptr<Channel> channel);

  const Options options_;
  Mutex main_mutex_;
  std::unique_ptr<Channel> main_ TRIREME_GUARDED_BY(main_mutex_);
  Mutex state_mutex_;  // held for moments only, so that a wait never queues behind a slow request
  std::string lost_ TRIREME_GUARDED_BY(state_mutex_);  // why the store is lost
  std::vector<std::unique_ptr<Channel>> idle_
      TRIREME_GUARDED_BY(state_mutex_);  // connections without a name, for waits
};

/// Asks a server for the job's token, where this machine has none (TcpStoreServer::Enrolment). Tries until the
/// deadline; a PeerError carries the server's reason for a refusal.
Token enrol(const Endpoint& server, Deadline deadline);

}  // namespace trireme::store
