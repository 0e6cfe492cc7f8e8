#include "trireme/store/channel.h"

#include <sys/socket.h>

#include <cerrno>

#include "trireme/core/backoff.h"
#include "trireme/core/text.h"
#include "trireme/store/handshake.h"

namespace trireme::store {
namespace {

using wire::Message;
using wire::Type;

constexpr Millis kMaxTry{5000};  // of one attempt, so that a name with a dead first address still gets its turn

// Repeats `attempt` while it fails by ConnectionLost and time is left; the last failure is the one reported.
template <typename Attempt>
auto keep_trying(Deadline deadline, Attempt attempt) {
  for (Backoff backoff(Millis{20}, Millis{500});; backoff.pause(deadline)) {
    try {
      return attempt(earlier(deadline, Deadline::in(kMaxTry)));
    } catch (const ConnectionLost&) {
      if (deadline.passed()) throw;
    }
  }
}

UniqueFd connect_or_lost(const Endpoint& server, Deadline deadline) try {
  return connect_tcp(server, deadline);
} catch (const PeerError& error) {
  throw ConnectionLost("[store] {}", error.what());
}

// A port without a listener may be the one the kernel gives to this very socket, which then talks to itself.
bool is_own_echo(int socket) {
  const SocketAddress local = local_address(socket);
  const SocketAddress peer = peer_address(socket);
  return port_of(local) == port_of(peer) && ip_text(local) == ip_text(peer);
}

// Whether `reply` is of a kind that `request` may get, so that its parts can be relied on.
bool fits(Type request, Type reply) {
  switch (request) {
    case Type::set:
      return reply == Type::done;
    case Type::get:
    case Type::try_get:
      return reply == Type::value || reply == Type::absent;
    case Type::compare_set:
    case Type::ping:
      return reply == Type::value;
    case Type::list:
      return reply == Type::entries;
    default:
      return reply == Type::number;
  }
}

}  // namespace

Channel::Channel(Endpoint server) : server_(std::move(server)) {}

Channel Channel::connect(const Endpoint& server, Deadline deadline) {
  Channel channel(server);
  channel.socket_ = connect_or_lost(server, deadline);
  if (is_own_echo(channel.socket_.get())) throw ConnectionLost("[store] nothing listens at {} yet", to_string(server));
  tune_control_socket(channel.socket_.get());
  set_nonblocking(channel.socket_.get());
  return channel;
}

Channel Channel::open(const Options& options, Deadline deadline) {
  return keep_trying(deadline, [&](Deadline attempt) {
    Channel channel = connect(options.server, attempt);
    tune_control_socket(channel.socket_.get(), options.link_timeout);
    channel.greet(options, attempt);
    return channel;
  });
}

Token Channel::enrol(const Endpoint& server, Deadline deadline) {
  return keep_trying(deadline, [&](Deadline attempt) { return connect(server, attempt).ask_for_token(attempt); });
}

void Channel::greet(const Options& options, Deadline deadline) {
  const Greeting greeting{.server_nonce = receive_challenge(deadline),
                          .client_nonce = random_bytes(wire::kNonceSize),
                          .name = options.name};
  send({.type = Type::hello, .parts = {greeting.client_nonce, greeting.name, client_proof(options.token, greeting)}},
       deadline);
  const Message welcome = receive_expected(Type::welcome, deadline);
  if (!constant_time_equal(welcome.parts[0], server_proof(options.token, greeting)))
    throw PeerError("[store] {} does not know this job's token; is it another job's store?", to_string(server_));
  const SessionKeys keys = session_keys(options.token, greeting);
  reader_.open_with(keys.server);
  sealer_.emplace(keys.client);
}

Token Channel::ask_for_token(Deadline deadline) {
  receive_challenge(deadline);
  const KeyAgreement agreement;
  send({.type = Type::enrol, .parts = {agreement.public_key()}}, deadline);
  const Message enrolled = receive_expected(Type::enrolled, deadline);
  return Token::from_bytes(open_sealed(agreement.shared_secret(enrolled.parts[0]), enrolled.parts[1]));
}

std::string Channel::receive_challenge(Deadline deadline) {
  return receive_expected(Type::challenge, deadline).parts[0];
}

Message Channel::receive_expected(Type type, Deadline deadline) {
  Message message = receive(deadline);
  if (message.type == Type::refuse)
    throw PeerError("[store] {} refuses this process: {}", to_string(server_), printable(message.parts[0]));
  if (message.type != type)
    throw PeerError("[store] {} sent message type {}, expected was {}; is it another version?", to_string(server_),
                    static_cast<int>(message.type), static_cast<int>(type));
  return message;
}

Message Channel::request(const Message& message, Deadline deadline) {
  send(message, deadline);
  Message reply = receive(deadline);
  if (reply.type != Type::failed && !fits(message.type, reply.type))
    throw PeerError("[store] {} answered request type {} by type {}; is it another version?", to_string(server_),
                    static_cast<int>(message.type), static_cast<int>(reply.type));
  return reply;
}

void Channel::send(const Message& message, Deadline deadline) {
  const std::string bytes = wire::encode(message);
  if (!sealer_) return send_bytes(bytes, deadline);
  for (size_t begin = 0; begin < bytes.size(); begin += kMaxRecord)
    send_bytes(sealer_->seal(std::string_view(bytes).substr(begin, kMaxRecord)), deadline);
}

void Channel::send_bytes(std::string_view bytes, Deadline deadline) {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = ::send(socket_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n >= 0) {
      sent += static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EINTR) {
      if (!wait_writable(socket_.get(), deadline))
        throw ConnectionLost("[store] {} takes no more bytes ({} of {} sent); is it stopped?", to_string(server_), sent,
                             bytes.size());
    } else {
      throw ConnectionLost("[store] lost the connection to {}: {}; did its launcher end?", to_string(server_),
                           errno_text(errno));
    }
  }
}

Message Channel::receive(Deadline deadline) {
  for (;;) {
    wire::Decoded next = reader_.next(wire::kMaxPayload);
    if (next.status == wire::Status::bad)
      throw PeerError("[store] {} sent a bad message: {}; {}", to_string(server_), next.error,
                      sealer_ ? "somebody changes the traffic between these two addresses"
                              : "is another program, or another version of Trireme, on this port?");
    if (next.status == wire::Status::complete) return std::move(next.message);
    read_more(deadline);
  }
}

void Channel::read_more(Deadline deadline) {
  char chunk[64u << 10];
  const ssize_t n = ::recv(socket_.get(), chunk, sizeof chunk, 0);
  if (n > 0) {
    reader_.append({chunk, static_cast<size_t>(n)});
  } else if (n == 0) {
    throw ConnectionLost("[store] {} has closed the connection; did its launcher end?", to_string(server_));
  } else if (errno != EAGAIN && errno != EINTR) {
    throw ConnectionLost("[store] lost the connection to {}: {}; did its launcher end?", to_string(server_),
                         errno_text(errno));
  } else if (!wait_readable(socket_.get(), deadline)) {
    throw ConnectionLost("[store] {} has not answered in time; is it stopped, or is the network cut?",
                         to_string(server_));
  }
}

}  // namespace trireme::store
