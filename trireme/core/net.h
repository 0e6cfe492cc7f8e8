// TCP as Trireme uses it: names and addresses of both families, and calls that end by a deadline.
//
//   UniqueFd listener = listen_tcp("127.0.0.1", 0);                       // port 0: a free one
//   UniqueFd peer = connect_tcp({"node1", 6069}, Deadline::in(5s));       // throws PeerError that says what to check
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/deadline.h"
#include "trireme/core/endpoint.h"
#include "trireme/core/fd.h"

namespace trireme {

/// "host:port", with brackets around an IPv6 address.
std::string to_string(const Endpoint& endpoint);
/// Reads "host", "host:port", "[v6]", "[v6]:port" or a bare IPv6 address. `what` names the text in errors (UsageError).
/// Without a port in the text, `default_port` is taken; without that either, it is an error.
Endpoint parse_endpoint(std::string_view text, std::string_view what, std::optional<uint16_t> default_port = {});

/// A resolved address.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

/// Numeric text of the address, without the port; an IPv4 address mapped into IPv6 is shown as IPv4.
std::string ip_text(const SocketAddress& address);
uint16_t port_of(const SocketAddress& address);
/// A name server that answers later is taken for a dead one.
inline constexpr std::chrono::seconds kResolveTime{20};

/// All addresses of a host name (IPv4 first). Throws UsageError that names the host; PeerError when no name server
/// answers by the deadline, or within kResolveTime, or when one reports that it has no answer at the moment.
std::vector<SocketAddress> resolve(const std::string& host, uint16_t port, Deadline deadline = Deadline::never());
/// Numeric text of `host`'s first address.
std::string resolve_ip(const std::string& host, Deadline deadline = Deadline::never());

/// A listening, close-on-exec socket. Throws SystemError that names the address and, for a taken port, says so.
UniqueFd listen_tcp(const std::string& host, uint16_t port, int backlog = 512);
/// Bound but not listening, SO_REUSEADDR: keeps a port from being handed out by the kernel while the program it is
/// meant for can still bind it, or listen on the inherited descriptor. An empty host is the wildcard address.
UniqueFd reserve_port(const std::string& host, uint16_t port);
/// Connects by the deadline or throws PeerError: refused, unreachable and silent are told apart.
UniqueFd connect_tcp(const Endpoint& endpoint, Deadline deadline);

SocketAddress local_address(int socket);
SocketAddress peer_address(int socket);
/// How long a connection between launchers, or from a rank to the job's store, may be silent before it counts as lost.
inline constexpr std::chrono::milliseconds kLinkTimeout{8000};

/// No delay, and keep-alive probes: a peer that is silent for longer than `silence` is lost.
void tune_control_socket(int socket, std::chrono::milliseconds silence = kLinkTimeout);

struct Interface {
  std::string name;
  std::string ip;
  bool loopback = false;
};
/// Addresses of the interfaces that are up, IPv4 before IPv6, link-local IPv6 left out.
std::vector<Interface> local_interfaces();
/// The interface that has `ip`, if it is one of this machine's.
std::optional<Interface> interface_with(const std::string& ip,
                                        const std::vector<Interface>& interfaces = local_interfaces());
/// The local address from which packets to `host` would leave.
std::string source_ip_towards(const std::string& host);
std::string host_name();
/// The same with its domain, where the name server knows it and answers within kResolveTime.
std::string full_host_name();

}  // namespace trireme
