#include "trireme/store/connection.h"

#include <sys/socket.h>

#include <cerrno>

#include "trireme/core/token.h"

namespace trireme::store {
namespace {

constexpr size_t kChunk = 64u << 10;
constexpr size_t kShare = 1u << 20;  // of one client, before the others have their turn

bool try_later(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

Connection::Connection(UniqueFd socket, std::string ip_, Deadline handshake)
    : ip(std::move(ip_)), nonce(random_bytes(wire::kNonceSize)), socket_(std::move(socket)), deadline_(handshake) {}

bool Connection::receive() {
  char chunk[kChunk];
  const size_t share = state == State::greeting ? kChunk : kShare;
  for (size_t total = 0; total < share;) {
    const ssize_t n = ::recv(socket_.get(), chunk, sizeof chunk, 0);
    if (n < 0) return try_later(errno);
    if (n == 0) return false;
    if (state != State::closing) reader_.append({chunk, static_cast<size_t>(n)});
    total += static_cast<size_t>(n);
    if (static_cast<size_t>(n) < sizeof chunk) break;
  }
  return true;
}

wire::Decoded Connection::next() {
  return reader_.next(state == State::greeting ? wire::kMaxGreeting : wire::kMaxPayload);
}

void Connection::seal_with(const SessionKeys& keys) {
  reader_.open_with(keys.client);
  sealer_.emplace(keys.server);
}

void Connection::queue(Bytes bytes) {
  waiting_bytes_ += bytes->size();
  waiting_.push_back({.bytes = std::move(bytes), .sealed = sealer_.has_value()});
}

std::string Connection::take_piece() {
  const Outgoing& front = waiting_.front();
  const std::string_view rest = std::string_view(*front.bytes).substr(taken_of_front_);
  const std::string_view piece = rest.substr(0, kMaxRecord);
  std::string bytes = front.sealed ? sealer_->seal(piece) : std::string(piece);
  taken_of_front_ += piece.size();
  waiting_bytes_ -= piece.size();
  if (piece.size() == rest.size()) {
    waiting_.pop_front();
    taken_of_front_ = 0;
  }
  return bytes;
}

bool Connection::flush() {
  while (unsent() > 0) {
    if (sent_ == sending_.size()) {
      sending_ = take_piece();
      sent_ = 0;
    }
    const ssize_t n =
        ::send(socket_.get(), sending_.data() + sent_, sending_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) return try_later(errno);
    sent_ += static_cast<size_t>(n);
  }
  sending_ = {};
  sent_ = 0;
  return true;
}

}  // namespace trireme::store
