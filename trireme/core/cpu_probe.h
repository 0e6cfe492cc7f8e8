// Virtual machines exist whose CPU announces AMX tiles but dies of the first tile instruction; oneDNN and OpenVINO
// believe the announcement. Trying it in a throw-away process is the only way to know.
#pragma once

namespace trireme {

/// What ONEDNN_MAX_CPU_ISA says to oneDNN on such a machine.
inline constexpr const char* kCpuWithoutAmx = "AVX512_CORE_FP16";

/// True when the CPU announces AMX and executing it kills the process. Takes about a millisecond; the answer is kept.
bool amx_is_broken();
/// Sets ONEDNN_MAX_CPU_ISA where AMX is broken, unless the user has. To be called before libtorch computes.
void avoid_broken_amx();
/// Usable cores: what this process may be scheduled on.
int usable_cores();

}  // namespace trireme
