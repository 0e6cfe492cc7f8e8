#include "trireme/tipc/own_node.h"

#include "trireme/core/error.h"
#include "trireme/core/net.h"
#include "trireme/core/text.h"

namespace trireme::tipc {
namespace {

bool is_here(const std::string& host) {
  for (const SocketAddress& address : resolve(host, 0))
    if (const std::string ip = ip_text(address); ip.starts_with("127.") || interface_with(ip)) return true;
  return false;
}

int own_node(const Placement& placement) {
  for (size_t i = 0; i < placement.hosts.size(); ++i)
    if (is_here(placement.hosts[i])) return static_cast<int>(i);
  if (placement.hosts.empty()) return 0;
  std::vector<std::string> own;
  for (const Interface& interface : local_interfaces())
    if (!interface.loopback) own.push_back(interface.ip);
  throw UsageError("gpu_list: none of {} is this machine, which has {}; correct the list, or --set gpu_list=…",
                   join(placement.hosts, ", "), own.empty() ? "no address but loopback" : join(own, ", "));
}

}  // namespace

std::vector<int> own_nodes(const Case& test) {
  std::vector<int> nodes;
  for (const Placement& placement : test.placements) nodes.push_back(own_node(placement));
  return nodes;
}

}  // namespace trireme::tipc
