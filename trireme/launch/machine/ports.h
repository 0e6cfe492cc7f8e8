// Ports that are never raced for.
//
// A port is *kept* by a socket that is bound to it and does not listen, with SO_REUSEADDR. The kernel then does
// not give the port to a program that asks for a free one, while the program it is meant for still gets it: our own
// workers inherit the socket and call listen(2) on it; a foreign script (torch's or Paddle's store) binds over it.
// Ports the user chose by number are also *claimed* by a named lock, since two launchers could keep the same number
// without noticing each other.
//
//   NodePorts ports = NodePorts::keep({.address = "10.0.0.1", .processes = 2, .start_port = 17000});
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/core/fd.h"

namespace trireme::launch {

class NodePorts {
 public:
  struct Options {
    std::string address;
    int processes = 1;
    std::optional<uint16_t> start_port = {};  // consecutive ports from here; else free ones
  };
  /// Throws UsageError that names the port when a chosen one is taken, and by whom if that is another Trireme job.
  static NodePorts keep(const Options& options);

  /// One port for each process.
  const std::vector<uint16_t>& ports() const { return ports_; }
  /// For MASTER_PORT. With a start port it is the first one (as Paddle has it), so that one opened range suffices.
  uint16_t master_port() const { return master_port_; }
  /// The kept socket of a process, for it to inherit.
  int socket(int process) const { return sockets_.at(static_cast<size_t>(process)).get(); }

 private:
  std::vector<uint16_t> ports_;
  uint16_t master_port_ = 0;
  std::vector<UniqueFd> sockets_;
  std::vector<UniqueFd> claims_;
};

/// The machine-wide (network namespace wide) claim on a port number; UsageError when another launcher has it.
UniqueFd claim_port(uint16_t port);

}  // namespace trireme::launch
