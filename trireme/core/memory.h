// How much memory there is to have.
//
//   if (bytes > memory_of_machine()) throw UsageError("{} are needed, {} there are", …);
#pragma once

#include <cstddef>
#include <string>

namespace trireme {

/// What the machine has, or what a container (cgroup) may use of it. A guess of 16 GiB where nothing can be told.
size_t memory_of_machine();

/// "9408.0 GiB", "12.5 MiB".
std::string bytes_text(double bytes);

}  // namespace trireme
