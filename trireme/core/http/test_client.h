// A client for tests that sends exactly the given bytes.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>

#include "trireme/core/fd.h"
#include "trireme/core/net.h"

namespace trireme::http {

class TestClient {
 public:
  explicit TestClient(uint16_t port)
      : socket_(connect_tcp({"127.0.0.1", port}, Deadline::in(std::chrono::seconds(10)))) {}

  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count > 0)
        bytes.remove_prefix(static_cast<size_t>(count));
      else if (!wait_writable(socket_.get(), Deadline::in(std::chrono::seconds(10))) || errno == EPIPE)
        return;
    }
  }
  void end() { ::shutdown(socket_.get(), SHUT_WR); }
  /// Closes with a reset: the other side loses what it has not read or sent yet.
  void reset() {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    socket_.reset();
  }

  /// Whether something of an answer, or the end, has come by the deadline.
  bool hears(Deadline deadline) { return wait_readable(socket_.get(), deadline); }
  /// One whole answer, head and body; "" when the connection was closed before.
  std::string answer() {
    while (!whole(got_) && receive()) {
    }
    if (!whole(got_)) return std::exchange(got_, {});
    const std::string result = got_.substr(0, whole(got_));
    got_.erase(0, result.size());
    return result;
  }
  std::string ask(std::string_view bytes) {
    send(bytes);
    return answer();
  }
  /// Whether the other side has closed.
  bool closed() {
    while (receive()) {
    }
    return ended_;
  }

 private:
  static size_t whole(const std::string& text) {
    const size_t head = text.find("\r\n\r\n");
    if (head == std::string::npos) return 0;
    const size_t length = text.find("Content-Length: ");
    const size_t body = length < head ? std::stoul(text.substr(length + 16)) : 0;
    return text.size() >= head + 4 + body ? head + 4 + body : 0;
  }
  bool receive() {
    if (!wait_readable(socket_.get(), Deadline::in(std::chrono::seconds(10)))) return false;
    std::array<char, 4096> bytes;
    const ssize_t count = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    ended_ = count <= 0;
    if (count > 0) got_.append(bytes.data(), static_cast<size_t>(count));
    return count > 0;
  }

  UniqueFd socket_;
  std::string got_;
  bool ended_ = false;
};

}  // namespace trireme::http
