#include "trireme/core/net.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <future>
#include <memory>

#include "trireme/core/clock.h"
#include "trireme/core/error.h"
#include "trireme/core/quiet_thread.h"
#include "trireme/core/text.h"

namespace trireme {
namespace {

bool is_bare_ipv6(std::string_view text) {
  return std::count(text.begin(), text.end(), ':') >= 2;
}

uint16_t parse_port(std::string_view digits, std::string_view text, std::string_view what) {
  const auto port = parse_int(digits, 1, 65535);
  if (!port) throw UsageError("{} \"{}\": the port must be a number from 1 to 65535, not \"{}\"", what, text, digits);
  return static_cast<uint16_t>(*port);
}

UniqueFd make_socket(int family) {
  UniqueFd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) throw SystemError(errno, "cannot make a socket");
  return socket;
}

void set_option(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

SocketAddress wildcard(uint16_t port) {
  SocketAddress address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  v4->sin_family = AF_INET;
  v4->sin_port = htons(port);
  v4->sin_addr.s_addr = htonl(INADDR_ANY);
  address.length = sizeof *v4;
  return address;
}

UniqueFd bind_tcp(const std::string& host, uint16_t port) {
  const SocketAddress address = host.empty() ? wildcard(port) : resolve(host, port).front();
  UniqueFd socket = make_socket(address.family());
  set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(socket.get(), address.get(), address.length) != 0)
    throw SystemError(errno, "cannot take port {} on {}", port, host.empty() ? "every address" : host);
  return socket;
}

// Finishes a non-blocking connect; returns 0 or the errno of the failure.
int finish_connect(int socket, Deadline deadline) {
  if (!wait_writable(socket, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t length = sizeof error;
  ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
  return error;
}

int try_connect(int socket, const SocketAddress& address, Deadline deadline) {
  set_nonblocking(socket);
  int error = ::connect(socket, address.get(), address.length) == 0 ? 0 : errno;
  if (error == EINPROGRESS) error = finish_connect(socket, deadline);
  set_nonblocking(socket, false);
  return error;
}

SocketAddress ask_for_address(int (*ask)(int, sockaddr*, socklen_t*), int socket, const char* whose) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (ask(socket, address.get(), &address.length) != 0) throw SystemError(errno, "cannot read {} address", whose);
  return address;
}

const char* connect_advice(int error) {
  switch (error) {
    case ECONNREFUSED:
      return "nothing listens there: is the other side started, and is the port right?";
    case EHOSTUNREACH:
    case ENETUNREACH:
      return "no route: check the address, the cable and the routing table";
    case ETIMEDOUT:
      return "no answer: check with ping, and that no firewall drops this port";
    default:
      return "check the address and the network";
  }
}

struct Lookup {
  int error = 0;  // of getaddrinfo(3)
  std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> found{nullptr, &::freeaddrinfo};
};

Lookup look_up(const std::string& host, uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  Lookup lookup;
  lookup.error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  lookup.found.reset(found);
  return lookup;
}

// getaddrinfo() has no deadline and cannot be called off: a thread asks, and is left alone when it takes too long.
Lookup look_up_by(const std::string& host, uint16_t port, int flags, Deadline deadline) {
  const auto since = Clock::now();
  std::promise<Lookup> promise;
  std::future<Lookup> answer = promise.get_future();
  start_quiet_thread("a name lookup", [host, port, flags, promise = std::move(promise)]() mutable {
    promise.set_value(look_up(host, port, flags));
  }).detach();
  if (answer.wait_until(deadline.time()) != std::future_status::ready)
    throw PeerError("cannot resolve host \"{}\": no answer after {:.1f} s; check /etc/resolv.conf and the name server",
                    host, std::chrono::duration<double>(Clock::now() - since).count());
  return answer.get();
}

}  // namespace

std::string to_string(const Endpoint& endpoint) {
  if (is_bare_ipv6(endpoint.host)) return fmt::format("[{}]:{}", endpoint.host, endpoint.port);
  return fmt::format("{}:{}", endpoint.host, endpoint.port);
}

Endpoint parse_endpoint(std::string_view text, std::string_view what, std::optional<uint16_t> default_port) {
  std::string_view host = text;
  std::optional<std::string_view> port;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) throw UsageError("{} \"{}\": the bracket is not closed", what, text);
    host = text.substr(1, end - 1);
    const std::string_view rest = text.substr(end + 1);
    if (rest.starts_with(':'))
      port = rest.substr(1);
    else if (!rest.empty())
      throw UsageError("{} \"{}\": only :port may follow the bracket", what, text);
  } else if (!is_bare_ipv6(text)) {
    const size_t colon = text.rfind(':');
    host = text.substr(0, colon);
    if (colon != std::string_view::npos) port = text.substr(colon + 1);
  }
  if (host.empty()) throw UsageError("{} \"{}\": the host is missing; write host:port", what, text);
  if (port) return {std::string(host), parse_port(*port, text, what)};
  if (!default_port) throw UsageError("{} \"{}\": the port is missing; write host:port", what, text);
  return {std::string(host), *default_port};
}

std::string ip_text(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.family() == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr, text, sizeof text);
  } else if (address.family() == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&v6))
      ::inet_ntop(AF_INET, &v6.s6_addr[12], text, sizeof text);
    else
      ::inet_ntop(AF_INET6, &v6, text, sizeof text);
  }
  return text;
}

uint16_t port_of(const SocketAddress& address) {
  if (address.family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(address.get())->sin_port);
  if (address.family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_port);
  return 0;
}

std::vector<SocketAddress> resolve(const std::string& host, uint16_t port, Deadline deadline) {
  Lookup lookup = look_up(host, port, AI_NUMERICHOST);
  if (lookup.error == EAI_NONAME) lookup = look_up_by(host, port, 0, earlier(deadline, Deadline::in(kResolveTime)));
  if (lookup.error == EAI_AGAIN)
    throw PeerError("cannot resolve host \"{}\": {}; check /etc/resolv.conf and the name server", host,
                    ::gai_strerror(lookup.error));
  if (lookup.error != 0)
    throw UsageError("cannot resolve host \"{}\": {}; check the spelling, /etc/hosts and DNS", host,
                     ::gai_strerror(lookup.error));
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = lookup.found.get(); entry; entry = entry->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
  }
  std::stable_partition(addresses.begin(), addresses.end(), [](const auto& a) { return a.family() == AF_INET; });
  return addresses;
}

std::string resolve_ip(const std::string& host, Deadline deadline) {
  return ip_text(resolve(host, 0, deadline).front());
}

UniqueFd listen_tcp(const std::string& host, uint16_t port, int backlog) {
  UniqueFd socket = bind_tcp(host, port);
  if (::listen(socket.get(), backlog) != 0) throw SystemError(errno, "cannot listen on {}", to_string({host, port}));
  return socket;
}

UniqueFd reserve_port(const std::string& host, uint16_t port) {
  return bind_tcp(host, port);
}

UniqueFd connect_tcp(const Endpoint& endpoint, Deadline deadline) {
  int error = 0;
  for (const SocketAddress& address : resolve(endpoint.host, endpoint.port, deadline)) {
    UniqueFd socket = make_socket(address.family());
    error = try_connect(socket.get(), address, deadline);
    if (error == 0) return socket;
  }
  throw PeerError("cannot connect to {}: {}; {}", to_string(endpoint), errno_text(error), connect_advice(error));
}

SocketAddress local_address(int socket) {
  return ask_for_address(::getsockname, socket, "a socket's");
}

SocketAddress peer_address(int socket) {
  return ask_for_address(::getpeername, socket, "a peer's");
}

// The kernel looks at TCP_USER_TIMEOUT whenever a probe is due, and then ignores TCP_KEEPCNT.
void tune_control_socket(int socket, std::chrono::milliseconds silence) {
  constexpr int64_t kMaxKeepalive = 32767;  // seconds, of the kernel
  const int64_t seconds = silence.count() / 1000;
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, static_cast<int>(std::clamp<int64_t>(seconds / 2, 1, kMaxKeepalive)));
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, static_cast<int>(std::clamp<int64_t>(seconds / 8, 1, kMaxKeepalive)));
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(std::min<int64_t>(silence.count(), INT_MAX)));
}

std::vector<Interface> local_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw SystemError(errno, "cannot list the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<Interface> interfaces;
  for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP)) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    SocketAddress address;
    address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.storage, entry->ifa_addr, address.length);
    const std::string ip = ip_text(address);
    if (family == AF_INET6 && ip.starts_with("fe80:")) continue;
    interfaces.push_back({entry->ifa_name, ip, (entry->ifa_flags & IFF_LOOPBACK) != 0});
  }
  std::stable_partition(interfaces.begin(), interfaces.end(), [](const auto& i) { return !is_bare_ipv6(i.ip); });
  return interfaces;
}

std::optional<Interface> interface_with(const std::string& ip, const std::vector<Interface>& interfaces) {
  for (const Interface& interface : interfaces)
    if (interface.ip == ip) return interface;
  if (ip.starts_with("127.")) return Interface{"lo", ip, true};  // the whole block is this machine
  return std::nullopt;
}

std::string source_ip_towards(const std::string& host) {
  const SocketAddress target = resolve(host, 9).front();
  UniqueFd socket(::socket(target.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));  // a datagram connect sends nothing
  if (!socket || ::connect(socket.get(), target.get(), target.length) != 0)
    throw SystemError(errno, "no route from this machine to {}", host);
  return ip_text(local_address(socket.get()));
}

std::string host_name() {
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) != 0) return "localhost";
  return name;
}

std::string full_host_name() try {
  const Lookup lookup = look_up_by(host_name(), 0, AI_CANONNAME, Deadline::in(kResolveTime));
  return lookup.error == 0 && lookup.found->ai_canonname ? lookup.found->ai_canonname : host_name();
} catch (const PeerError&) {
  return host_name();
}

}  // namespace trireme
