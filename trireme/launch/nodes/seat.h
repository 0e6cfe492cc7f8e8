// Where this node sits in its job: how many nodes there are, which one this is, and where they meet.
//
// The *coordinator* is the launcher that hosts the job's store; it is always node 0.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/core/net.h"
#include "trireme/launch/options/request.h"

namespace trireme::launch {

inline constexpr uint16_t kDefaultStartPort = 6070;  // Paddle's; nodes meet one below

struct Seat {
  int nodes = 1;
  int node = -1;                           // -1: given out when the nodes meet
  std::string address = {};                // numeric: where the others reach this node
  std::string interface = {};              // of that address
  std::vector<std::string> peers = {};     // every node's host as the user wrote it, when known (--ips, hosts)
  std::vector<std::string> peer_ips = {};  // their addresses
  std::optional<Endpoint> meeting = {};    // where the coordinator listens; nothing: etcd knows, or one node
  bool may_host = false;                   // this node becomes the coordinator if the address is still free
  bool must_host = false;                  // no other can
};

/// Works out the seat from the request and this machine's addresses. Throws UsageError: own address not in the list
/// (both are printed), the coordinator's address is not here, no usable address. A name behind --master, which may come
/// from a scheduler, is looked up until --join_timeout: a pod may start before pod 0 has its record.
Seat find_seat(const Request& request, const std::vector<Interface>& interfaces);

}  // namespace trireme::launch
