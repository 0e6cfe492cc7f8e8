// One authenticated connection to the server: a request goes out, its reply comes back. Internal to the client.
//
//   Channel channel = Channel::open({.server = address, .token = token, .name = "rank 3"}, Deadline::in(5s));
//   wire::Message reply = channel.request({.type = wire::Type::time}, Deadline::in(5s));
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trireme/core/deadline.h"
#include "trireme/core/error.h"
#include "trireme/core/fd.h"
#include "trireme/core/net.h"
#include "trireme/core/token.h"
#include "trireme/store/sealed.h"
#include "trireme/store/wire.h"

namespace trireme::store {

/// The connection is gone or silent; trying again may help. A refusal is a plain PeerError.
class ConnectionLost : public PeerError {
 public:
  using PeerError::PeerError;
};

/// Thread rule: one thread at a time. After an exception from request() the channel is of no more use, because a late
/// reply could be taken for that of the next request.
class Channel {
 public:
  struct Options {
    Endpoint server;
    Token token;
    std::string name{};
    std::chrono::milliseconds link_timeout = kLinkTimeout;
  };

  /// Connects and proves the token, trying again until the deadline.
  static Channel open(const Options& options, Deadline deadline);
  /// Asks for the token; otherwise as open().
  static Token enrol(const Endpoint& server, Deadline deadline);

  wire::Message request(const wire::Message& message, Deadline deadline);

 private:
  explicit Channel(Endpoint server);
  static Channel connect(const Endpoint& server, Deadline deadline);
  void greet(const Options& options, Deadline deadline);
  Token ask_for_token(Deadline deadline);
  std::string receive_challenge(Deadline deadline);
  wire::Message receive_expected(wire::Type type, Deadline deadline);
  void send(const wire::Message& message, Deadline deadline);
  void send_bytes(std::string_view bytes, Deadline deadline);
  wire::Message receive(Deadline deadline);
  void read_more(Deadline deadline);

  Endpoint server_;
  UniqueFd socket_;
  MessageReader reader_;
  std::optional<Sealer> sealer_;  // once the greeting has ended
};

}  // namespace trireme::store
