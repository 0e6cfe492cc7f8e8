// A node's description on its way between launchers. What arrives was authenticated, but may come from another version
// or a broken disk: nothing of it is believed before it was checked.
#include <arpa/inet.h>

#include <nlohmann/json.hpp>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/launch/plan.h"

namespace trireme::launch {
namespace {

using nlohmann::json;

constexpr int kMaxCores = 1 << 20;
constexpr size_t kMaxText = 4096;

const json& field(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) throw PeerError("a node's description lacks \"{}\"", name);
  return *found;
}

// Texts end up in environments and on consoles: no control characters, no endless ones.
std::string checked_text(const json& value, const char* name) {
  if (!value.is_string()) throw PeerError("a node's \"{}\" is not a text: {}", name, printable(value.dump()));
  std::string text = value.get<std::string>();
  if (text.size() > kMaxText || printable(text) != text || text.find('\t') != std::string::npos)
    throw PeerError("a node's \"{}\" is too long or holds control characters: \"{}\"", name,
                    printable(text.substr(0, 80)));
  return text;
}

int checked_number(const json& value, const char* name, int low, int high) {
  const bool whole = value.is_number_integer();
  const bool within = whole && value <= high && value >= low;
  if (!within)
    throw PeerError("a node's \"{}\" must be a number from {} to {}, not {}", name, low, high,
                    printable(value.dump().substr(0, 80)));
  return value.get<int>();
}

const json& checked_list(const json& value, const char* name) {
  if (!value.is_array() || value.size() > kMaxProcesses)
    throw PeerError("a node's \"{}\" is not a list of at most {}", name, kMaxProcesses);
  return value;
}

std::string checked_address(const json& value) {
  std::string address = checked_text(value, "address");
  unsigned char bytes[sizeof(in6_addr)];
  if (::inet_pton(AF_INET, address.c_str(), bytes) != 1 && ::inet_pton(AF_INET6, address.c_str(), bytes) != 1)
    throw PeerError("a node's \"address\" must be an IPv4 or IPv6 address, not \"{}\"", address);
  return address;
}

void check_consistent(const NodeInfo& node) {
  if (node.ports.size() != static_cast<size_t>(node.processes))
    throw PeerError("node {} announces {} ports for {} processes", node.host, node.ports.size(), node.processes);
}

}  // namespace

std::string to_json(const NodeInfo& node) {
  const json object = {{"host", node.host},       {"address", node.address},         {"interface", node.interface},
                       {"devices", node.devices}, {"processes", node.processes},     {"cores", node.cores},
                       {"ports", node.ports},     {"master_port", node.master_port}, {"log_dir", node.log_dir},
                       {"machine", node.machine}};
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

NodeInfo node_from_json(const std::string& text) {
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) throw PeerError("not a node's description: \"{}\"", printable(text.substr(0, 80)));
  NodeInfo node;
  node.host = checked_text(field(object, "host"), "host");
  node.address = checked_address(field(object, "address"));
  node.interface = checked_text(field(object, "interface"), "interface");
  for (const json& device : checked_list(field(object, "devices"), "devices"))
    node.devices.push_back(checked_text(device, "devices"));
  node.processes = checked_number(field(object, "processes"), "processes", 1, kMaxProcesses);
  node.cores = checked_number(field(object, "cores"), "cores", 1, kMaxCores);
  for (const json& port : checked_list(field(object, "ports"), "ports"))
    node.ports.push_back(static_cast<uint16_t>(checked_number(port, "ports", 1, 65535)));
  node.master_port = static_cast<uint16_t>(checked_number(field(object, "master_port"), "master_port", 0, 65535));
  node.log_dir = checked_text(field(object, "log_dir"), "log_dir");
  node.machine = checked_text(field(object, "machine"), "machine");
  check_consistent(node);
  return node;
}

}  // namespace trireme::launch
