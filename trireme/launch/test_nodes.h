// Nodes for tests, without a machine. Included by tests only.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/launch/plan.h"

namespace trireme::launch {

/// With the ports 17000, 17001, …, one for each process.
inline NodeInfo example_node(const std::string& address, int processes, std::vector<std::string> devices = {}) {
  NodeInfo info{.host = "host-" + address,
                .address = address,
                .interface = "eth0",
                .devices = std::move(devices),
                .processes = processes,
                .cores = 8,
                .ports = {},
                .master_port = 6170,
                .log_dir = "/job/log"};
  for (int i = 0; i < processes; ++i) info.ports.push_back(static_cast<uint16_t>(17000 + i));
  return info;
}

}  // namespace trireme::launch
