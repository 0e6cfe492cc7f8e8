#include "trireme/core/cpu_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <thread>

#include "trireme/core/env.h"
#include "trireme/core/fd.h"
#include "trireme/core/file.h"

namespace trireme {
namespace {

bool announces_amx() {
#if defined(__x86_64__)
  const auto info = read_head("/proc/cpuinfo", 64u << 10);
  return info && info->find(" amx_tile") != std::string::npos;
#else
  return false;
#endif
}

// Runs in a forked child, and returns if that survives: asks the kernel for the tile state, then loads and clears one
// tile.
void execute_tiles() {
#if defined(__x86_64__)
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;
  rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  if (::syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) return;  // then oneDNN does not use it either
  alignas(64) uint8_t config[64] = {1};                                       // palette 1
  config[16] = 16;                                                            // tile 0: 16 bytes a row
  config[48] = 1;                                                             // one row
  asm volatile(
      ".byte 0xc4,0xe2,0x78,0x49,0x00\n\t"  // ldtilecfg (%rax)
      ".byte 0xc4,0xe2,0x7b,0x49,0xc0\n\t"  // tilezero %tmm0
      ".byte 0xc4,0xe2,0x78,0x49,0xc0"      // tilerelease
      :
      : "a"(config)
      : "memory");
#endif
}

[[noreturn]] void execute_tiles_and_tell(int out) {
  ::signal(SIGILL, SIG_DFL);
  execute_tiles();
  ::_exit(::write(out, "+", 1) == 1 ? 0 : 1);
}

// The child itself reports that it survived: where SIGCHLD is ignored, or another thread waits for all children,
// waitpid() only says that it has ended. No report counts as death: doing without AMX costs speed, dying costs the job.
bool dies_of_amx() {
  if (!announces_amx()) return false;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return true;
  const UniqueFd in(ends[0]), out(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return true;
  if (child == 0) execute_tiles_and_tell(out.get());
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  char word = 0;
  return ::read(in.get(), &word, 1) != 1;
}

}  // namespace

bool amx_is_broken() {
  static const bool broken = dies_of_amx();
  return broken;
}

void avoid_broken_amx() {
  if (!env::get_nonempty("ONEDNN_MAX_CPU_ISA") && amx_is_broken()) env::set("ONEDNN_MAX_CPU_ISA", kCpuWithoutAmx);
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace trireme
