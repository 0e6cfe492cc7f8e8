#include "trireme/store/tcp_server.h"

#include <system_error>

#include "trireme/core/error.h"
#include "trireme/store/server_loop.h"

namespace trireme {
namespace {

Endpoint bound_endpoint(int socket) {
  const SocketAddress address = local_address(socket);
  return {ip_text(address), port_of(address)};
}

std::thread start(ServerLoop& loop) try {
  return std::thread(&ServerLoop::run, &loop);
} catch (const std::system_error& error) {
  throw SystemError(error.code().value(), "[store] cannot start the server's thread");
}

}  // namespace

TcpStoreServer::TcpStoreServer(UniqueFd listener, Options options)
    : endpoint_(bound_endpoint(listener.get())),
      loop_(std::make_unique<ServerLoop>(std::move(listener), std::move(options))),
      thread_(start(*loop_)) {}

TcpStoreServer::~TcpStoreServer() {
  loop_->stop();
  thread_.join();
}

TcpStoreServer::Counters TcpStoreServer::counters() const {
  return loop_->counters();
}

}  // namespace trireme
