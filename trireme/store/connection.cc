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
    if (state != State::closing) in_.append(chunk, static_cast<size_t>(n));
    total += static_cast<size_t>(n);
    if (static_cast<size_t>(n) < sizeof chunk) break;
  }
  return true;
}

wire::Decoded Connection::next() {
  const size_t limit = state == State::greeting ? wire::kMaxGreeting : wire::kMaxPayload;
  wire::Decoded decoded = wire::decode(std::string_view(in_).substr(consumed_), limit);
  if (decoded.status == wire::Status::complete) consumed_ += decoded.size;
  if (decoded.status == wire::Status::incomplete) compact();
  return decoded;
}

// Gives memory back once what is in it has been understood: a client that sent a large value once keeps none of it.
void Connection::compact() {
  if (consumed_ == 0) return;
  std::string(in_, consumed_).swap(in_);
  consumed_ = 0;
}

void Connection::queue(Bytes bytes) {
  unsent_ += bytes->size();
  out_.push_back(std::move(bytes));
}

bool Connection::flush() {
  while (!out_.empty()) {
    const std::string& front = *out_.front();
    const ssize_t n = ::send(socket_.get(), front.data() + sent_of_front_, front.size() - sent_of_front_,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) return try_later(errno);
    sent_of_front_ += static_cast<size_t>(n);
    unsent_ -= static_cast<size_t>(n);
    if (sent_of_front_ < front.size()) continue;
    out_.pop_front();
    sent_of_front_ = 0;
  }
  return true;
}

}  // namespace trireme::store
