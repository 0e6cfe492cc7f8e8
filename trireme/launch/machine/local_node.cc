#include "trireme/launch/machine/local_node.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>

#include "trireme/core/cpu_probe.h"
#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/host_identity.h"
#include "trireme/core/log.h"
#include "trireme/launch/machine/devices.h"
#include "trireme/launch/options/options.h"

namespace trireme::launch {
namespace {

// A host list with slots says how many processes each host runs; -n on the command line would contradict it.
Request with_own_slots(Request request, const Seat& seat) {
  if (seat.node < 0 || static_cast<size_t>(seat.node) >= request.hosts.size()) return request;
  const int slots = request.hosts[static_cast<size_t>(seat.node)].slots;
  if (slots > 0 && !request.processes) request.processes = std::to_string(slots);
  return request;
}

DeviceChoice choose(const Request& request) {
  const auto visible_variable = env::get("CUDA_VISIBLE_DEVICES");
  std::vector<GpuInfo> present;
  if (may_use_gpus(request, visible_variable)) present = detect_gpus();
  return choose_devices(request, visible_devices(visible_variable, present), usable_cores(), present);
}

// A worker takes a kept port, two pipes, a control socket and a log file here, and a few more while it starts. Node 0
// also hosts the job's store, with some connections of each rank of all nodes: as many as it may have. Returns how many it
// had: workers get no more.
size_t allow_descriptors(int workers) {
  constexpr rlim_t kMost = 1 << 20;
  const rlim_t wanted = 256 + 8 * static_cast<rlim_t>(workers);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  if (limit.rlim_max < wanted)
    throw UsageError(
        "{} processes need about {} open files here, but the limit is {}; start fewer, or raise it (ulimit -n)",
        workers, wanted, limit.rlim_max);
  const rlim_t usual = limit.rlim_cur;
  if (usual >= std::min(limit.rlim_max, kMost)) return 0;
  limit.rlim_cur = std::min(limit.rlim_max, kMost);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return usual;
}

std::string machine_name() try {
  const HostIdentity host = this_host();
  return fmt::format("{} {} {}", host.boot_id, host.ipc_namespace, host.pid_namespace);
} catch (const SystemError&) {
  return "";
}

}  // namespace

LocalNode describe_local_node(const Request& original, const Seat& seat) {
  const Request request = with_own_slots(original, seat);
  const DeviceChoice choice = choose(request);
  if (!choice.warning.empty()) log_warning("{}", choice.warning);
  check_ports(request, choice.processes);
  for (const int rank : request.tee)
    if (rank >= choice.processes)
      log_warning("--tee {}: this node has only the local ranks 0 to {}", rank, choice.processes - 1);
  LocalNode node;
  node.usual_open_files = allow_descriptors(choice.processes);
  node.ports =
      NodePorts::keep({.address = seat.address, .processes = choice.processes, .start_port = request.start_port});
  node.info.host = host_name();
  node.info.address = seat.address;
  node.info.interface = seat.interface;
  node.info.devices = choice.devices;
  node.info.processes = choice.processes;
  node.info.cores = usable_cores();
  node.info.ports = node.ports.ports();
  node.info.master_port = node.ports.master_port();
  std::error_code ignored;
  node.info.log_dir = std::filesystem::absolute(request.log_dir, ignored).lexically_normal().string();
  node.info.machine = machine_name();
  return node;
}

}  // namespace trireme::launch
