#include "trireme/core/http/connection.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

namespace trireme::http {
namespace {

constexpr size_t kReadBytes = 64u << 10;  // at a time, so that no client keeps the others waiting

using Io = Connection::Io;

Io outcome(ssize_t count) {
  if (count > 0) return Io::more;
  const bool later = count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  return later ? Io::blocked : Io::ended;
}

}  // namespace

Io Connection::read_some() {
  std::array<char, kReadBytes> buffer;  // not initialised: it is written before it is read
  const ssize_t count = ::recv(fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (count > 0) feed({buffer.data(), static_cast<size_t>(count)});
  return outcome(count);
}

void Connection::feed(std::string_view bytes) {
  const size_t used = parser.take(bytes);
  if (parser.state() == Parser::State::complete) ahead.assign(bytes.substr(used));
}

Io Connection::write_some() {
  while (written < out.size()) {
    const ssize_t count = ::send(fd.get(), out.data() + written, out.size() - written, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count <= 0) return outcome(count);
    written += static_cast<size_t>(count);
  }
  return Io::more;
}

Io Connection::discard() {
  std::array<char, kReadBytes> buffer;
  return outcome(::recv(fd.get(), buffer.data(), buffer.size(), MSG_DONTWAIT));
}

/// The old one is moved out to be destroyed: a string that is assigned an empty one keeps its memory.
void Connection::forget_request(const Limits& limits) {
  std::exchange(parser, Parser(limits));
}

void Connection::next_request(const Limits& limits) {
  forget_request(limits);
  std::string().swap(out);
  written = 0;
  state = State::reading;
  late = false;
  probed = false;
  sent_early = 0;
  const std::string early = std::exchange(ahead, {});
  feed(early);
}

void Connection::send_continue() {
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  if (parser.wants_continue()) ::send(fd.get(), kContinue.data(), kContinue.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void Connection::probe() {
  probed = true;
  const ssize_t count = ::send(fd.get(), kAnswerStart.data(), kAnswerStart.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count > 0) sent_early = static_cast<size_t>(count);
}

}  // namespace trireme::http
