// An error of one rank is an error of all: work that may fail, done so that no rank goes on alone.
//
//   on_first(world, [&] { lock.emplace(folder); });       // rank 0 works; when it throws, all throw
//   together(world, [&] { read(my_part); });              // every rank works
//
// Called by every rank of the group at the same places. `work` itself may not communicate.
#pragma once

#include <functional>

#include "trireme/comm/group.h"

namespace trireme {

/// Whether the group has only this process, or not even it.
inline bool is_alone(const Group& group) {
  return group.size() <= 1;
}

/// Every rank works. If any of them throws, all throw: that rank its own exception, the others one of the same kind
/// (UsageError, SystemError, PeerError) with "rank N: " in front; PeerError for other exceptions. A process that is not
/// a member of the group works alone.
void together(const Group& group, const std::function<void()>& work);

/// The same, but only rank 0 works.
void on_first(const Group& group, const std::function<void()>& work);

}  // namespace trireme
