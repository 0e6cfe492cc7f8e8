#include "trireme/launch/machine/ports.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "trireme/core/error.h"
#include "trireme/core/net.h"

namespace trireme::launch {
namespace {

UniqueFd keep_chosen(const std::string& address, uint16_t port) {
  try {
    return reserve_port(address, port);
  } catch (const SystemError& error) {
    if (error.number() != EADDRINUSE) throw;
    throw UsageError(
        "port {} on {} is taken by another program (see: ss -ltnp 'sport = :{}'); choose another --start_port", port,
        address, port);
  }
}

}  // namespace

UniqueFd claim_port(uint16_t port) {
  // An abstract socket name lives in the network namespace, as ports do, and dies with its owner.
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string text = fmt::format("trireme-port-{}", port);
  std::memcpy(name.sun_path + 1, text.data(), text.size());
  UniqueFd claim(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  if (claim && ::bind(claim.get(), reinterpret_cast<const sockaddr*>(&name), length) == 0) return claim;
  if (errno != EADDRINUSE) throw SystemError(errno, "cannot claim port {}", port);
  throw UsageError(
      "port {} is held by another Trireme job on this machine; wait for it to end or choose another --start_port",
      port);
}

NodePorts NodePorts::keep(const Options& options) {
  NodePorts kept;
  for (int process = 0; process < options.processes; ++process) {
    const auto port = static_cast<uint16_t>(options.start_port ? *options.start_port + process : 0);
    if (port != 0) kept.claims_.push_back(claim_port(port));
    kept.sockets_.push_back(keep_chosen(options.address, port));
    kept.ports_.push_back(port_of(local_address(kept.sockets_.back().get())));
  }
  if (options.start_port) {
    kept.master_port_ = *options.start_port;
  } else {
    // Foreign stores listen on every address, so this one is kept on every address.
    kept.sockets_.push_back(reserve_port("", 0));
    kept.master_port_ = port_of(local_address(kept.sockets_.back().get()));
  }
  return kept;
}

}  // namespace trireme::launch
