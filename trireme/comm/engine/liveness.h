// Which of the other processes are alive: asked when a collective fails, to tell the culprit from its victims.
//
//   const Beacon beacon("10.0.0.1");                      // on every rank, as long as the group lives
//   store.set("beacon/2", to_string(beacon.endpoint()));
//   …
//   blame({{2, "rank 2 (process 123 on node1)", endpoint}, …});   // {2, "rank 2 (process 123 on node1) died"}
//
// How it works: a beacon is a listening socket that never accepts. The kernel answers connections to it on
// its own, so a process that computes, waits or is stopped still answers; and the kernel closes it with the process,
// however that ends, so a dead one refuses. No thread, no message, no heartbeat.
//
// Its limits: a machine that is off or cut off does not answer, which differs from a dead process but not from a slow
// network. After a process died its port may, later, be given to another one, which then looks alive. A beacon that a
// child process has inherited across fork() without exec lives as long as the child. A probe sends no data, and the
// socket waits for some (TCP_DEFER_ACCEPT) before it fills its queue of accepted connections; so any number of probes
// is answered. A peer that does send data can fill the queue, 4096 connections long; then the process seems
// unreachable.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/engine/blame.h"
#include "trireme/core/deadline.h"
#include "trireme/core/fd.h"
#include "trireme/core/net.h"

namespace trireme::comm {

class Beacon {
 public:
  /// Listens on a local address, at a port that the kernel chooses. Throws SystemError.
  explicit Beacon(const std::string& address);
  const Endpoint& endpoint() const { return endpoint_; }

 private:
  UniqueFd socket_;
  Endpoint endpoint_;
};

enum class Life {
  alive,        ///< perhaps busy, perhaps stopped
  dead,         ///< its machine refuses the connection
  unreachable,  ///< no answer by the deadline, or no way there
};

/// A process with its rank, and its name as it shall appear: "rank 2 (process 123 on node1)".
struct Suspect {
  int rank;
  std::string name;
  Endpoint endpoint;
};

/// Probes all at once. Nothing where the deadline came before the turn, or no descriptor was left.
std::vector<std::optional<Life>> probe_all(std::span<const Suspect> suspects, Deadline deadline);

/// "rank 2 (process 123 on node1) died", several with commas, "… is unreachable"; empty when all live. The dead come
/// first and, in the order given, the first of them is the first named, and the rank that is blamed. Never throws.
Blame blame(std::span<const Suspect> suspects, Deadline deadline = Deadline::in(std::chrono::seconds(1))) noexcept;
/// The same without those that are only unreachable: they may answer later.
Blame blame_dead(std::span<const Suspect> suspects, Deadline deadline = Deadline::in(std::chrono::seconds(1))) noexcept;

}  // namespace trireme::comm
