// Which machine a rank runs on, so that "same host" is known and never guessed from a variable or a host name.
//
// Two processes can share memory the way this module does it when they run under one boot of one kernel, see each
// other's process numbers (one pid namespace) and belong to one ipc namespace (the isolation an administrator asked
// for).
//
//   store.set("identity/3", encode(this_process()));
//   if (auto reason = difference(mine.host, theirs.host)) use_the_network(*reason);
#pragma once

#include <sys/types.h>

#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/deadline.h"
#include "trireme/core/host_identity.h"
#include "trireme/core/rank_info.h"
#include "trireme/store/store.h"

namespace trireme::comm::shm {

struct ProcessIdentity {
  HostIdentity host;
  pid_t pid = 0;
  uint64_t start_time = 0;  ///< tells a process from a later one with the same number
  std::bitset<1024> cpus;   ///< the processors it may run on
  int arena_fd = -1;        ///< of its Arena (arena.h), if it has one
  size_t arena_bytes = 0;   ///< 0: it has none
  bool operator==(const ProcessIdentity&) const = default;
};

/// Throws SystemError when /proc does not say.
ProcessIdentity this_process();

/// Why two processes cannot share memory, in words with both values; nothing when they can. Pure.
std::optional<std::string> difference(const HostIdentity& a, const HostIdentity& b);

std::string encode(const ProcessIdentity& identity);
/// PeerError when the text is not from encode().
ProcessIdentity decode_identity(std::string_view text);

/// Publishes this rank's identity under `prefix` and returns everyone's, in rank order. PeerError when the deadline
/// passes.
std::vector<ProcessIdentity> exchange_identities(Store& store, const std::string& prefix, RankInfo me,
                                                 Deadline deadline);

/// When the process started, in clock ticks after boot; nothing when there is no such process or only its remains.
std::optional<uint64_t> start_time_of(pid_t pid);
/// The same from the text of /proc/<pid>/stat. Pure.
std::optional<uint64_t> start_time_in(std::string_view stat);
/// Whether the process that had this number and start time still runs.
bool is_alive(pid_t pid, uint64_t start_time);

}  // namespace trireme::comm::shm
