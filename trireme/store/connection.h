// One client of the server as bytes: what came in and is not yet understood, what goes out and is not yet taken.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "trireme/core/clock.h"
#include "trireme/core/deadline.h"
#include "trireme/core/fd.h"
#include "trireme/store/engine.h"
#include "trireme/store/sealed.h"
#include "trireme/store/wire.h"

namespace trireme::store {

/// Thread rule: one thread. The socket must not block.
class Connection {
 public:
  enum class State {
    greeting,  // not yet admitted
    open,      // admitted
    closing,   // has its last message in the output
  };

  Connection(UniqueFd socket, std::string ip, Deadline handshake);

  /// Reads what has arrived, up to a share that is fair to the others. False at the end of the stream or on an error.
  bool receive();
  /// Takes the next whole message out of what was received.
  wire::Decoded next();
  /// From here on both directions are sealed; what was queued before still goes out in clear.
  void seal_with(const SessionKeys& keys);
  void queue(Bytes bytes);
  /// Sends what the socket takes now. False on an error.
  bool flush();

  int socket() const { return socket_.get(); }
  size_t unsent() const { return waiting_bytes_ + sending_.size() - sent_; }
  /// Bytes of a message that is not whole yet.
  size_t unread() const { return reader_.unread(); }
  /// By when it must have done what it is about to do: the handshake, the started message, taking its last reply.
  Deadline deadline() const { return deadline_; }
  void set_deadline(Deadline deadline) { deadline_ = deadline; }

  const std::string ip;
  const std::string nonce;
  const Clock::time_point since = Clock::now();
  State state = State::greeting;
  std::optional<Clock::time_point> message_since{};  // when the message that is not whole yet began
  std::string name{};

 private:
  struct Outgoing {
    Bytes bytes;
    bool sealed;
  };

  std::string take_piece();

  UniqueFd socket_;
  Deadline deadline_;
  MessageReader reader_;
  std::optional<Sealer> sealer_;
  std::deque<Outgoing> waiting_;
  size_t taken_of_front_ = 0;
  size_t waiting_bytes_ = 0;
  std::string sending_;  // sealed piece by piece: one value may wait for thousands of clients
  size_t sent_ = 0;      // of sending_
};

}  // namespace trireme::store
