// Virtual machines exist whose CPU announces AMX tiles but dies of the first tile instruction; oneDNN believes the
// announcement. Trying it in a throw-away process is the only way to know.
#pragma once

namespace trireme::launch {

/// True when the CPU announces AMX and executing it kills the process. Takes about a millisecond; the answer is kept.
bool amx_is_broken();
/// Usable cores: what this process may be scheduled on.
int usable_cores();

}  // namespace trireme::launch
