#include "trireme/store/tcp_server.h"

#include "trireme/core/quiet_thread.h"
#include "trireme/store/server_loop.h"

namespace trireme::store {
namespace {

Endpoint bound_endpoint(int socket) {
  const SocketAddress address = local_address(socket);
  return {ip_text(address), port_of(address)};
}

}  // namespace

TcpStoreServer::TcpStoreServer(UniqueFd listener, Options options)
    : endpoint_(bound_endpoint(listener.get())),
      loop_(std::make_unique<ServerLoop>(std::move(listener), std::move(options))),
      thread_(start_quiet_thread("the store server", [loop = loop_.get()] { loop->run(); })) {}

TcpStoreServer::~TcpStoreServer() {
  loop_->stop();
  thread_.join();
}

TcpStoreServer::Counters TcpStoreServer::counters() const {
  return loop_->counters();
}

}  // namespace trireme::store
