// The store that a launcher hosts for its job: one thread, one poll loop, every connection authenticated.
//
//   TcpStoreServer server(listen_tcp("127.0.0.1", 0), {.token = Token::random(),
//                                                      .on_disconnect = [&](const std::string& who) { lost(who); }});
//   start_workers(server.endpoint());
//
// A connection begins with a challenge; the client proves to know the job's token, then the server does. A client that
// sends a wrong proof, is too slow, asks for too much or breaks the protocol is closed and counted; the others are not
// affected. The content is lost when the server ends.
#pragma once

#include <climits>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "trireme/core/clock.h"
#include "trireme/core/fd.h"
#include "trireme/core/net.h"
#include "trireme/core/token.h"

namespace trireme::store {

class ServerLoop;

/// Thread rule: every method may be called from any thread. The callbacks run on the server's thread: they must be
/// short and must not call this server's store (its thread would wait for itself).
class TcpStoreServer {
 public:
  /// Lets machines without the token join: they get it sealed with a key agreed by X25519. Nobody is authenticated that
  /// way, only counted and told apart by address; say so to the user.
  struct Enrolment {
    /// Address as resolve_ip() writes it -> joins allowed; empty: any address.
    std::map<std::string, int> allowed_ips = {};
    int max_joins = INT_MAX;  ///< from all addresses together
    /// A place is free again when a client of its address whose name this accepts has disconnected. Every process of a
    /// job connects, but only its launchers have joined.
    std::function<bool(const std::string& name)> has_joined = [](const std::string&) { return true; };
  };

  struct Options {
    Token token;
    std::optional<Enrolment> enrolment{};
    /// The name a client gave to connect(), when it has proved the token and when its connection ends. Not called for
    /// connections without a name, nor for those that this server's own destruction ends.
    std::function<void(const std::string& name)> on_connect{};
    std::function<void(const std::string& name)> on_disconnect{};
    Millis link_timeout = kLinkTimeout;  ///< a client whose machine is silent for longer is gone
    Millis handshake_timeout{5000};      ///< from accept to proof
    Millis message_timeout{10000};       ///< for a started message, and a second more for each MiB it announces
    size_t max_connections = 4096;       ///< the next one gets a refusal and is closed
    /// Addresses whose newcomers are never closed in favour of others'; that of an admitted client counts as well.
    std::set<std::string> expected_ips = {};
    size_t max_unauthenticated = 256;      ///< a quarter of them from one address that is not expected; see make_room
    size_t max_bytes = size_t{1} << 30;    ///< keys, values and their book-keeping together
    size_t max_output = size_t{32} << 20;  ///< replies a client has not read; asking for one more, it is closed
  };

  /// What was turned away since the start.
  struct Counters {
    uint64_t rejected_tokens = 0;
    uint64_t refused_enrolments = 0;
    uint64_t refused_connections = 0;  ///< beyond max_connections
    uint64_t bad_messages = 0;
    uint64_t timeouts = 0;      ///< handshakes and messages not finished in time
    uint64_t slow_readers = 0;  ///< beyond max_output
  };

  /// Takes a listening socket, bound by the caller, and starts to serve. Throws SystemError when there is no thread.
  TcpStoreServer(UniqueFd listener, Options options);
  /// Closes every connection: waiting clients get a PeerError at once.
  ~TcpStoreServer();
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;

  uint16_t port() const { return endpoint_.port; }
  /// The bound address in numbers; 0.0.0.0 when bound to every address.
  const Endpoint& endpoint() const { return endpoint_; }
  Counters counters() const;

 private:
  Endpoint endpoint_;
  std::unique_ptr<ServerLoop> loop_;
  std::thread thread_;
};

}  // namespace trireme::store
