// `trireme doctor`: is this machine fit for a job, and are the machines fit for each other?
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include "cli/commands.h"
#include "trireme/comm/engine/mpi.h"
#include "trireme/comm/engine/shm/reduce.h"
#include "trireme/core/cpu_probe.h"
#include "trireme/core/env.h"
#include "trireme/core/error.h"
#include "trireme/core/net.h"
#include "trireme/core/plugin.h"
#include "trireme/core/token.h"
#include "trireme/core/version.h"
#include "trireme/launch/launcher.h"
#include "trireme/launch/machine/devices.h"
#include "trireme/launch/options/help.h"
#include "trireme/launch/options/options.h"

namespace trireme::cli {
namespace {

constexpr const char* kUsage =
    "usage: trireme doctor                       check this machine\n"
    "       trireme doctor --ips a,b             on every machine: can they reach each other, and how fast?\n"
    "       trireme doctor --ips a,b --ssh       the same from one terminal\n"
    "\n"
    "The options about machines are those of `trireme launch`:\n\n";

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
  for (const auto& gpu : gpus)
    line(true, fmt::format("GPU {}: {}, {:.1f} of {:.1f} GiB free", gpu.index, gpu.name,
                           static_cast<double>(gpu.memory_free) / (1 << 30),
                           static_cast<double>(gpu.memory_total) / (1 << 30)));
}

void check_network() {
  for (const Interface& interface : local_interfaces())
    line(true, fmt::format("address {} on {}{}", interface.ip, interface.name,
                           interface.loopback ? " (this machine only)" : ""));
}

void check_shared_memory() {
  constexpr double kMinSharedMemory = 1.0;  // GiB; containers are often given 64 MiB
  struct statvfs info {};
  if (::statvfs("/dev/shm", &info) != 0) return line(false, "/dev/shm is missing: mount a tmpfs there");
  const double free = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize) / (1 << 30);
  line(free >= kMinSharedMemory, fmt::format("/dev/shm has {:.1f} GiB free{}", free,
                                             free >= kMinSharedMemory ? "" : "; in Docker use --shm-size=8g"));
}

// The engines of collectives. An absent one is not a problem: it needs a library that may not be installed.
void check_backends() {
  line(true, fmt::format("backend shm: between ranks of this machine ({})", comm::shm::reduce_instruction_set()));
  line(true, "backend gloo: between machines, inside libtorch");
  const auto no_mpi = comm::why_no_mpi();
  line(true, no_mpi ? fmt::format("no backend mpi: {}", *no_mpi) : std::string("backend mpi: under mpirun and srun"));
  const auto nccl = Plugin::locate("libtrireme_cuda.so");
  line(true, nccl ? fmt::format("backend nccl: {}", *nccl)
                  : std::string("no backend nccl: libtrireme_cuda.so is built where libtorch comes with CUDA"));
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

int check_machine() {
  fmt::print("trireme {} on {}\n", kVersion, host_name());
  check_cpu();
  check_gpus();
  check_network();
  check_shared_memory();
  check_backends();
  check_limits();
  check_token();
  return g_problem ? 1 : 0;
}

}  // namespace

int doctor(const Words& words) {
  if (words.empty()) return check_machine();
  Words all{"--check_only", "--job_id", "doctor"};
  all.insert(all.end(), words.begin(), words.end());
  all.insert(all.end(), {"--", "true"});
  const auto log = launch::plain_log();
  launch::Request request = launch::parse_launch(all, env::all(), "trireme doctor");
  if (request.help_topic) return fmt::print("{}{}", kUsage, launch::launch_help("nodes")), 0;
  if (request.command != Words{"true"})
    throw UsageError("doctor takes no program, only options; see: trireme doctor --help");
  if (*request.nodes < 2)
    throw UsageError("doctor needs two machines or more; add --ips a,b (see: trireme doctor --help)");
  return launch::run_launch(std::move(request));
}

}  // namespace trireme::cli
