// A host and a port. core/net.h reads and writes it as text and connects to it.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

struct Endpoint {
  std::string host = {};  ///< a name, an IPv4 address, or an IPv6 address without brackets
  uint16_t port = 0;
  bool operator==(const Endpoint&) const = default;
};

}  // namespace trireme
