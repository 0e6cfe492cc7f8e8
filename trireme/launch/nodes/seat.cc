#include "trireme/launch/nodes/seat.h"

#include <map>

#include "trireme/core/backoff.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/launch/options/hostfile.h"

namespace trireme::launch {
namespace {

class Machine {
 public:
  explicit Machine(const std::vector<Interface>& interfaces) : interfaces_(interfaces) {}

  std::optional<Interface> owner_of(const std::string& ip) const { return interface_with(ip, interfaces_); }

  std::string addresses() const {
    std::vector<std::string> texts;
    for (const Interface& interface : interfaces_)
      if (!interface.loopback) texts.push_back(fmt::format("{} ({})", interface.ip, interface.name));
    return texts.empty() ? "none but loopback" : join(texts, ", ");
  }

  // The address under which other machines most likely reach this one.
  std::string default_address() const {
    for (const Interface& interface : interfaces_)
      if (!interface.loopback) return interface.ip;
    throw UsageError("this machine has no address but loopback; give --host or bring a network interface up");
  }

  void sit_at(Seat& seat, const std::string& ip) const {
    seat.address = ip;
    if (const auto interface = owner_of(ip)) seat.interface = interface->name;
  }

 private:
  const std::vector<Interface>& interfaces_;
};

std::vector<std::string> listed_hosts(const Request& request) {
  std::vector<std::string> hosts;
  for (const HostSlots& entry : request.hosts) hosts.push_back(entry.host);
  return hosts;
}

Deadline names_by(const Request& request) {
  return Deadline::in(request.join_timeout);
}

std::string awaited_ip(const Request& request, const std::string& host) {
  const Deadline deadline = names_by(request);
  for (Backoff backoff(Millis(500), Millis(10'000));; backoff.pause(deadline)) {
    try {
      return resolve_ip(host, deadline);
    } catch (const Error& error) {
      if (request.dry_run || deadline.passed()) throw;
      log_info("waiting for the name behind --master: {}", error.what());
    }
  }
}

std::string host_override(const Request& request, const Machine& machine) {
  const std::string ip = resolve_ip(*request.host, names_by(request));
  if (!machine.owner_of(ip))
    throw UsageError("--host {}: {} is not an address of this machine; it has {}", *request.host, ip,
                     machine.addresses());
  return ip;
}

Seat one_node(const Request& request, const Machine& machine) {
  Seat seat{.node = 0};
  machine.sit_at(seat, request.host ? host_override(request, machine) : "127.0.0.1");
  return seat;
}

// Every listed name must resolve, also those of other machines: a typing error should show here, not as a long wait.
Seat listed_nodes(const Request& request, const std::vector<std::string>& hosts, const Machine& machine) {
  Seat seat{.nodes = static_cast<int>(hosts.size()), .peers = hosts};
  const std::optional<std::string> wanted =
      request.host ? std::optional(host_override(request, machine)) : std::nullopt;
  const Deadline deadline = names_by(request);
  std::map<std::string, std::string> names;  // by address
  for (size_t i = 0; i < hosts.size(); ++i) {
    const std::string ip = resolve_ip(hosts[i], deadline);
    seat.peer_ips.push_back(ip);
    if (const auto [earlier, added] = names.emplace(ip, hosts[i]); !added)
      throw UsageError("the hosts {} and {} are the same machine ({}); name each once", earlier->second, hosts[i], ip);
    const bool here = wanted ? ip == *wanted : machine.owner_of(ip).has_value();
    if (!here || seat.node >= 0) continue;
    seat.node = static_cast<int>(i);
    machine.sit_at(seat, ip);
  }
  if (seat.node < 0)
    throw UsageError("{} is not one of the listed hosts {}; this machine's addresses are {}; correct the list{}",
                     wanted ? "--host " + *request.host : "this machine", join(hosts, ","), machine.addresses(),
                     request.host ? " or --host" : ", or name this machine with --host");
  const uint16_t start = request.start_port.value_or(kDefaultStartPort);
  seat.meeting = Endpoint{seat.peer_ips[0], static_cast<uint16_t>(start - 1)};
  seat.may_host = seat.must_host = seat.node == 0;
  return seat;
}

Seat with_master(const Request& request, const Machine& machine) {
  Seat seat{.nodes = *request.nodes, .node = request.node_rank};
  const std::string master_ip = awaited_ip(request, request.master->host);
  seat.meeting = Endpoint{master_ip, request.master->port};
  const bool local = machine.owner_of(master_ip).has_value();
  if (request.node_rank == 0 && !local)
    throw UsageError(
        "--rank 0 must run on the machine of --master {}, whose address {} is not here; this machine has {}",
        to_string(*request.master), master_ip, machine.addresses());
  seat.must_host = request.node_rank == 0;
  seat.may_host = local && request.node_rank <= 0;
  if (request.host)
    machine.sit_at(seat, host_override(request, machine));
  else
    machine.sit_at(seat, local ? master_ip : source_ip_towards(master_ip));
  return seat;
}

Seat with_etcd(const Request& request, const Machine& machine) {
  Seat seat{.nodes = *request.nodes, .node = request.node_rank};
  seat.may_host = request.node_rank <= 0;
  machine.sit_at(seat, request.host ? host_override(request, machine)
                                    : source_ip_towards(awaited_ip(request, request.etcd->host)));
  return seat;
}

// `--nnodes 2` and no address: this node becomes the coordinator on a free port and says what to type elsewhere.
Seat without_address(const Request& request, const Machine& machine) {
  if (request.node_rank > 0)
    throw UsageError("--rank {} needs the coordinator's address; add --master host:port", request.node_rank);
  Seat seat{.nodes = *request.nodes, .node = 0, .may_host = true, .must_host = true};
  machine.sit_at(seat, request.host ? host_override(request, machine) : machine.default_address());
  seat.meeting = Endpoint{seat.address, 0};
  return seat;
}

}  // namespace

Seat find_seat(const Request& request, const std::vector<Interface>& interfaces) {
  const Machine machine(interfaces);
  const std::vector<std::string> hosts = listed_hosts(request);
  if (hosts.size() > 1) return listed_nodes(request, hosts, machine);
  if (request.nodes.value_or(1) > 1) {
    if (request.etcd) return with_etcd(request, machine);
    if (request.master) return with_master(request, machine);
    return without_address(request, machine);
  }
  if (hosts.size() == 1) {
    Seat seat = listed_nodes(request, hosts, machine);
    seat.meeting.reset();
    return seat;
  }
  return one_node(request, machine);
}

}  // namespace trireme::launch
