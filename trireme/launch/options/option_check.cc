#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/launch/options/hostfile.h"
#include "trireme/launch/options/option_table.h"
#include "trireme/launch/options/options.h"

namespace trireme::launch {
namespace {

constexpr uint16_t kTorchMasterPort = 29500;
constexpr uint16_t kTorchRendezvousPort = 29400;

void check_program(const Draft& draft) {
  if (draft.request.command.empty())
    throw UsageError("PROGRAM is missing: trireme launch [options] PROGRAM [args] (see: trireme launch --help)");
}

// The options given that say how nodes meet, in the order of the table.
std::vector<std::string> meeting_places(const Draft& draft) {
  std::vector<std::string> names;
  for (const Option& option : option_table())
    if (option.role == Role::meeting_place && draft.has(option.names[0])) names.push_back(option.names[0]);
  return names;
}

void check_one_meeting_place(const Draft& draft) {
  const auto places = meeting_places(draft);
  if (places.size() > 1)
    throw UsageError("{} and {} both say where the machines meet; give one of them", draft.shown(places[0]),
                     draft.shown(places[1]));
  if (draft.standalone && !places.empty())
    throw UsageError("--standalone is this machine alone, but {} names others; give one of them",
                     draft.shown(places[0]));
  if (draft.master_port && !places.empty() && places[0] != "--master_addr")
    throw UsageError("{} goes with --master_addr, not with {}", draft.shown("--master_port"), draft.shown(places[0]));
}

void settle_rendezvous(Draft& draft) {
  const bool etcd = draft.rdzv_backend && draft.rdzv_backend->starts_with("etcd");
  if (etcd && !draft.rdzv_endpoint)
    throw UsageError("{} needs the address of etcd: add --rdzv_endpoint host:port", draft.shown("--rdzv_backend"));
  if (draft.rdzv_endpoint) {
    const std::string& source = draft.given.at("--rdzv_endpoint").source;
    const Endpoint endpoint = parse_endpoint(*draft.rdzv_endpoint, source, etcd ? kEtcdPort : kTorchRendezvousPort);
    (etcd ? draft.request.etcd : draft.request.master) = endpoint;
  }
  if (draft.master_addr || draft.master_port)
    draft.request.master =
        Endpoint{draft.master_addr.value_or("127.0.0.1"), draft.master_port.value_or(kTorchMasterPort)};
}

// -np with -H: the first `total` slots are used.
void fill_slots(Draft& draft) {
  std::vector<HostSlots> used;
  int left = *draft.total;
  for (HostSlots host : draft.request.hosts) {
    if (host.slots == 0)
      throw UsageError("{}: host {} has no number of slots; write it like {}:4", draft.shown("--num_proc"), host.host,
                       host.host);
    host.slots = std::min(host.slots, left);
    left -= host.slots;
    if (host.slots > 0) used.push_back(host);
  }
  if (left > 0)
    throw UsageError("{}: the hosts have {} slots together; give more slots or a smaller number",
                     draft.shown("--num_proc"), *draft.total - left);
  draft.request.hosts = std::move(used);
}

void settle_total(Draft& draft) {
  if (!draft.total) return;
  if (draft.request.processes)
    throw UsageError("{} and {} both say how many processes; give one of them", draft.shown("--num_proc"),
                     draft.shown("--nproc_per_node"));
  const auto& hosts = draft.request.hosts;
  if (!hosts.empty() && !draft.has("--ips")) return fill_slots(draft);
  if (hosts.size() > 1 || draft.request.nodes.value_or(1) > 1)
    throw UsageError(
        "{} counts the processes of the whole job; with several machines give --nproc_per_node, or -H "
        "host:slots,host:slots",
        draft.shown("--num_proc"));
  draft.request.processes = processes_value(draft.given.at("--num_proc"));
}

// -n beside a hostfile: gives slots to the hosts without; must agree with the others.
void settle_slots(Draft& draft) {
  Request& request = draft.request;
  if (!request.processes) return;
  const int number = static_cast<int>(parse_int(*request.processes, 1, kMaxProcesses).value_or(0));
  for (HostSlots& host : request.hosts) {
    if (host.slots == 0)
      host.slots = number;
    else if (host.slots != number)
      throw UsageError("{} contradicts the {} slots of host {}; leave one of them out", draft.shown("--nproc_per_node"),
                       host.slots, host.host);
  }
}

void settle_nodes(Draft& draft) {
  Request& request = draft.request;
  const int named = static_cast<int>(request.hosts.size());
  if (named > 0 && request.nodes && *request.nodes != named)
    throw UsageError("{} contradicts {}, which names {} machine{}; leave --nnodes out", draft.shown("--nnodes"),
                     draft.shown(meeting_places(draft).front()), named, named == 1 ? "" : "s");
  if (!request.nodes) request.nodes = std::max(1, named);
  if (*request.nodes == 1) return;
  if (draft.standalone)
    throw UsageError("--standalone is this machine alone, but {}; leave one of them out", draft.shown("--nnodes"));
}

void check_rank(const Draft& draft) {
  const int nodes = *draft.request.nodes;
  if (draft.request.node_rank < nodes) return;
  if (nodes == 1)
    throw UsageError("{}: the job has 1 machine, so its rank is 0; for more give --nnodes", draft.shown("--rank"));
  throw UsageError("{}: the job has {} machines, so the rank is from 0 to {}", draft.shown("--rank"), nodes, nodes - 1);
}

// The number of local processes as far as it is known without looking at the machine.
int known_processes(const Request& request) {
  int number = static_cast<int>(parse_int(request.processes.value_or(""), 1, kMaxProcesses).value_or(0));
  for (const HostSlots& host : request.hosts) number = std::max(number, host.slots);
  if (number == 0 && request.devices) number = static_cast<int>(request.devices->size());
  return number;
}

void check_tee(const Draft& draft) {
  const auto number = parse_int(draft.request.processes.value_or(""), 1, kMaxProcesses);
  if (!number || draft.request.tee.empty() || draft.request.tee.back() < *number) return;
  throw UsageError("{}: a machine has {} process{}, so local ranks are from 0 to {}", draft.shown("--tee"), *number,
                   *number == 1 ? "" : "es", *number - 1);
}

void check_ssh(const Draft& draft) {
  if (draft.request.ssh && draft.request.hosts.empty())
    throw UsageError("--ssh needs to know the machines; add --ips, --hostfile or -H");
}

}  // namespace

void check_ports(const Request& request, int processes) {
  if (!request.start_port || *request.start_port + processes - 1 <= 65535) return;
  if (processes > 65534)
    throw UsageError("--start_port {}: {} processes need more ports than there are; leave --start_port out",
                     *request.start_port, processes);
  throw UsageError("--start_port {}: {} processes need the ports {} to {}, and 65535 is the last; start at {} or lower",
                   *request.start_port, processes, *request.start_port, *request.start_port + processes - 1,
                   65536 - processes);
}

void settle(Draft& draft) {
  check_program(draft);
  check_one_meeting_place(draft);
  settle_rendezvous(draft);
  settle_total(draft);
  settle_slots(draft);
  settle_nodes(draft);
  check_rank(draft);
  check_ports(draft.request, std::max(1, known_processes(draft.request)));
  check_tee(draft);
  check_ssh(draft);
}

}  // namespace trireme::launch
