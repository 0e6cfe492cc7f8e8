// What `trireme doctor` says about this machine alone.
#include "cli/machine_check.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <cstdio>
#include <utility>

#include "cli/commands.h"
#include "trireme/comm/engine/mpi.h"
#include "trireme/comm/engine/shm/reduce.h"
#include "trireme/core/cpu_probe.h"
#include "trireme/core/error.h"
#include "trireme/core/fd.h"
#include "trireme/core/net.h"
#include "trireme/core/plugin.h"
#include "trireme/core/shell.h"
#include "trireme/core/text.h"
#include "trireme/core/token.h"
#include "trireme/core/version.h"
#include "trireme/launch/machine/devices.h"
#include "trireme/launch/nodes/seat.h"

namespace trireme::cli {
namespace {

constexpr uint16_t kMeetingPort = launch::kDefaultStartPort - 1;

bool g_problem = false;

void line(bool good, const std::string& what) {
  g_problem |= !good;
  fmt::print("{} {}\n", good ? "ok     " : "problem", what);
}

void check_cpu() {
  line(true, fmt::format("{} usable cores", usable_cores()));
  if (amx_is_broken())
    line(false,
         fmt::format("the CPU announces AMX but cannot run it; workers get ONEDNN_MAX_CPU_ISA={}", kCpuWithoutAmx));
}

void check_gpus() {
  const auto gpus = launch::detect_gpus();
  if (gpus.empty()) line(true, "no GPU: jobs run on the CPU");
  if (const auto version = launch::gpu_driver_version()) line(true, fmt::format("NVIDIA driver {}", *version));
  for (const auto& gpu : gpus)
    line(true, fmt::format("GPU {}: {}, {:.1f} of {:.1f} GiB free", gpu.index, gpu.name,
                           static_cast<double>(gpu.memory_free) / (1 << 30),
                           static_cast<double>(gpu.memory_total) / (1 << 30)));
}

/// The interface of the default route. The address lies in a block for examples, and nothing is sent to it.
std::string default_way() try {
  const std::string ip = source_ip_towards("192.0.2.1");
  const auto interface = interface_with(ip);
  return fmt::format("{} on {}", ip, interface ? interface->name : "an unknown interface");
} catch (const SystemError&) {
  return "no default route";
}

void check_network() {
  for (const Interface& interface : local_interfaces())
    line(true, fmt::format("address {} on {}{}", interface.ip, interface.name,
                           interface.loopback ? " (this machine only)" : ""));
  line(true, fmt::format("towards other machines: {}; with --master or --ips it may be another one; --host chooses one",
                         default_way()));
}

void check_port() try {
  const UniqueFd port = reserve_port("", kMeetingPort);
  line(true, fmt::format("port {}, where machines meet, is free", kMeetingPort));
} catch (const SystemError& error) {
  line(false, fmt::format("machines cannot meet here on their usual port: {}; end the job that has it, or give "
                          "--start_port",
                          error.what()));
}

void check_shared_memory() {
  constexpr double kMinSharedMemory = 1.0;  // GiB; containers are often given 64 MiB
  struct statvfs info {};
  if (::statvfs("/dev/shm", &info) != 0) return line(false, "/dev/shm is missing: mount a tmpfs there");
  const double free = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize) / (1 << 30);
  line(free >= kMinSharedMemory, fmt::format("/dev/shm has {:.1f} GiB free{}", free,
                                             free >= kMinSharedMemory ? "" : "; in Docker use --shm-size=8g"));
}

struct Loaded {
  int status = -1;  // of the loader, as pclose() tells
  std::string text = {};
};

/// The shared libraries of a program, as the loader finds them, without running it: "libx.so => /lib/libx.so (0x7f…)".
Loaded libraries_of(const std::string& program) {
  const std::string command = "LD_TRACE_LOADED_OBJECTS=1 exec " + shell_word(program) + " 2>&1";
  FILE* const pipe = ::popen(command.c_str(), "r");
  if (!pipe) return {};
  Loaded loaded;
  char buffer[4096];
  for (size_t count = 1; count > 0;) loaded.text.append(buffer, count = std::fread(buffer, 1, sizeof buffer, pipe));
  loaded.status = ::pclose(pipe);
  return loaded;
}

// What trains is linked to libtorch; this program is not, so that it starts where libtorch does not.
void check_torch() {
  const auto program = find_external("train");
  if (!program)
    return line(true,
                "no libtorch: trireme-train is neither beside this program nor in PATH; only the launcher is here");
  const Loaded loaded = libraries_of(*program);
  std::vector<std::string> missing;
  std::string found;
  for (const std::string& each : split(loaded.text, '\n')) {
    const std::vector<std::string> words = split(trim(each), ' ');  // "libx.so", "=>", its path or "not"
    if (words.size() < 3) continue;
    if (words[2] == "not") missing.push_back(words[0]);
    if (words[0] == "libtorch_cpu.so") found = words[2];
  }
  if (!missing.empty())
    return line(false, fmt::format("{} cannot start: the loader does not find {}; install them, or add their folder to "
                                   "LD_LIBRARY_PATH",
                                   *program, join(missing, ", ")));
  if (loaded.status != 0)
    return line(false, fmt::format("{} cannot start: the loader fails; see: ldd {}", *program, shell_word(*program)));
  line(true, fmt::format("libtorch: {}", found.empty() ? "inside " + *program : found));
}

// They may be left out: a program that infers needs one of them.
void check_libraries() {
  check_torch();
  for (const auto& [name, file] :
       {std::pair("OpenVINO", "libtrireme_openvino.so"), std::pair("libtorch's engine", "libtrireme_torch.so")}) {
    const auto path = Plugin::locate(file);
    line(true, path ? fmt::format("inference by {}: {}", name, *path)
                    : fmt::format("no inference by {}: there is no {}", name, file));
  }
}

// The engines of collectives. An absent one is not a problem: it needs a library that may not be installed.
void check_backends() {
  line(true, fmt::format("backend shm: between ranks of this machine ({})", comm::shm::reduce_instruction_set()));
  line(true, "backend gloo: between machines, inside libtorch");
  const auto no_mpi = comm::why_no_mpi();
  line(true, no_mpi ? fmt::format("no backend mpi: {}", *no_mpi) : std::string("backend mpi: under mpirun and srun"));
  const auto nccl = Plugin::locate("libtrireme_cuda.so");
  line(true, nccl
                 ? fmt::format("backend nccl: {}", *nccl)
                 : std::string("no backend nccl: there is no libtrireme_cuda.so; it is built where libtorch comes with "
                               "CUDA, and the headers of CUDA and NCCL are there"));
}

void check_limits() {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  line(files.rlim_max >= 4096, fmt::format("up to {} open files", files.rlim_max));
  rlimit locked{};
  ::getrlimit(RLIMIT_MEMLOCK, &locked);
  line(true,
       locked.rlim_cur == RLIM_INFINITY
           ? std::string("locked memory is not limited")
           : fmt::format("locked memory up to {} KiB (InfiniBand wants: ulimit -l unlimited)", locked.rlim_cur / 1024));
}

void check_token() {
  try {
    line(true, configured_token() ? "token file found: nodes will be authenticated"
                                  : "no token file: nodes of a job on several machines are not authenticated");
  } catch (const UsageError& error) {
    line(false, error.what());
  }
}

}  // namespace

int check_machine() {
  fmt::print("trireme {} on {}\n", kVersion, host_name());
  check_cpu();
  check_gpus();
  check_network();
  check_port();
  check_shared_memory();
  check_libraries();
  check_backends();
  check_limits();
  check_token();
  return g_problem ? 1 : 0;
}

}  // namespace trireme::cli
