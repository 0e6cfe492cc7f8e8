// One client of the server as bytes: what came in and is not yet understood, what goes out and is not yet taken.
#pragma once

#include <deque>
#include <string>

#include "trireme/core/clock.h"
#include "trireme/core/deadline.h"
#include "trireme/core/fd.h"
#include "trireme/store/engine.h"
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
  void queue(Bytes bytes);
  /// Sends what the socket takes now. False on an error.
  bool flush();

  int socket() const { return socket_.get(); }
  size_t unsent() const { return unsent_; }
  /// Bytes of a message that is not whole yet.
  size_t unread() const { return in_.size() - consumed_; }
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
  void compact();

  UniqueFd socket_;
  Deadline deadline_;
  std::string in_;
  size_t consumed_ = 0;
  std::deque<Bytes> out_;
  size_t sent_of_front_ = 0;
  size_t unsent_ = 0;
};

}  // namespace trireme::store
