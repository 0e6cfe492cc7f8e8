// Which machine a process runs on, so that "same host" is known and never guessed from a variable or a host name.
//
//   if (this_host() == theirs) share_memory();
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

struct HostIdentity {
  std::string boot_id;         ///< /proc/sys/kernel/random/boot_id
  uint64_t ipc_namespace = 0;  ///< inode number of /proc/self/ns/ipc
  uint64_t pid_namespace = 0;  ///< inode number of /proc/self/ns/pid
  bool operator==(const HostIdentity&) const = default;
};

/// Throws SystemError when /proc does not say.
HostIdentity this_host();

}  // namespace trireme
