#include "trireme/core/http/server.h"

#include "trireme/core/http/loop.h"
#include "trireme/core/net.h"
#include "trireme/core/quiet_thread.h"

namespace trireme::http {

Server::Server(UniqueFd listener, const ServerOptions& options, Handler handler, Observer observer)
    : stopped_(make_pipe()), port_(port_of(local_address(listener.get()))) {
  loop_ = std::make_unique<Loop>(options, std::move(listener), std::move(handler), std::move(observer));
  thread_ = start_quiet_thread("the HTTP server", [this] {
    loop_->run();
    stopped_.second.reset();
  });
}

Server::~Server() {
  loop_->stop();
  thread_.join();
}

Counts Server::counts() const {
  return loop_->counts();
}

void Server::drain() {
  loop_->drain();
}

bool Server::wait(Deadline deadline) const {
  return wait_readable(stopped_fd(), deadline);
}

}  // namespace trireme::http
