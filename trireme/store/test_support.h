// What the store's tests share. Included by tests only.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/core/file.h"
#include "trireme/core/net.h"
#include "trireme/core/test_support.h"
#include "trireme/store/handshake.h"
#include "trireme/store/sealed.h"
#include "trireme/store/tcp_client.h"
#include "trireme/store/tcp_server.h"
#include "trireme/store/wire.h"

namespace trireme::store::testing {

using namespace std::chrono_literals;

/// A client that sends whatever a test wants.
class RawClient {
 public:
  explicit RawClient(const Endpoint& server) : socket_(connect_tcp(server, Deadline::in(20s))) {}

  int fd() const { return socket_.get(); }
  void send(std::string_view bytes) { (void)::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  void send(const wire::Message& message) { send(std::string_view(sealed(wire::encode(message)))); }
  /// As bytes go out after the greeting; unchanged before.
  std::string sealed(const std::string& bytes) { return sealer_ ? sealer_->seal(bytes) : bytes; }
  void close() { socket_.reset(); }

  /// The next message; a test failure when none comes.
  wire::Message receive() {
    for (;;) {
      wire::Decoded next = reader_.next(wire::kMaxPayload);
      if (next.status == wire::Status::complete) return next.message;
      if (!read_more(Deadline::in(20s))) {
        ADD_FAILURE() << "no message came";
        return {};
      }
    }
  }
  /// Whether the server ends the connection in time, whatever it sends before.
  bool closed(Deadline deadline = Deadline::in(20s)) {
    while (read_more(deadline)) {
    }
    return ended_;
  }
  /// The bytes of a correct answer to the server's challenge.
  std::string hello(const Token& token, const std::string& name) {
    const Greeting greeting{receive().parts.at(0), random_bytes(wire::kNonceSize), name};
    keys_ = session_keys(token, greeting);
    return wire::encode(
        {.type = wire::Type::hello, .parts = {greeting.client_nonce, name, client_proof(token, greeting)}});
  }
  void authenticate(const Token& token, const std::string& name = "") {
    send(std::string_view(hello(token, name)));
    EXPECT_EQ(receive().type, wire::Type::welcome);
    reader_.open_with(keys_.server);
    sealer_.emplace(keys_.client);
  }

 private:
  bool read_more(Deadline deadline) {
    if (!wait_readable(socket_.get(), deadline)) return false;
    char chunk[65536];
    const ssize_t n = ::recv(socket_.get(), chunk, sizeof chunk, 0);
    ended_ = n <= 0;
    if (n > 0) reader_.append({chunk, static_cast<size_t>(n)});
    return n > 0;
  }

  UniqueFd socket_;
  MessageReader reader_;
  SessionKeys keys_;
  std::optional<Sealer> sealer_;
  bool ended_ = false;
};

inline std::unique_ptr<TcpStore> join(const TcpStoreServer& server, const Token& token, const std::string& name = "") {
  return TcpStore::connect({.server = server.endpoint(), .token = token, .name = name}, Deadline::in(20s));
}

/// A real etcd on loopback in a directory of its own. Dies with this object, and with the test.
class EtcdProcess {
 public:
  EtcdProcess() : client_(free_port()), peer_(free_port()) { start(); }
  ~EtcdProcess() { kill(); }

  Endpoint endpoint() const { return {"127.0.0.1", client_}; }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  void start() {
    if (::access("/usr/bin/etcd", X_OK) != 0)
      throw std::runtime_error("/usr/bin/etcd is missing: apt install etcd-server");
    const std::string client_url = fmt::format("http://127.0.0.1:{}", client_);
    const std::string peer_url = fmt::format("http://127.0.0.1:{}", peer_);
    const std::vector<std::string> words = {"/usr/bin/etcd",
                                            "--data-dir",
                                            (dir_.path() / "data").string(),
                                            "--listen-client-urls",
                                            client_url,
                                            "--advertise-client-urls",
                                            client_url,
                                            "--listen-peer-urls",
                                            peer_url,
                                            "--initial-advertise-peer-urls",
                                            peer_url,
                                            "--initial-cluster",
                                            "default=" + peer_url,
                                            "--heartbeat-interval",
                                            "10",
                                            "--election-timeout",
                                            "100",
                                            "--logger",
                                            "zap",
                                            "--log-outputs",
                                            "stderr"};
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    const UniqueFd log(::open((dir_.path() / "log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::dup2(log.get(), STDOUT_FILENO);
    ::dup2(log.get(), STDERR_FILENO);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }

 private:
  static uint16_t free_port() { return port_of(local_address(listen_tcp("127.0.0.1", 0).get())); }

  TempDir dir_{"trireme-etcd"};
  uint16_t client_, peer_;
  pid_t pid_ = -1;
};

}  // namespace trireme::store::testing
