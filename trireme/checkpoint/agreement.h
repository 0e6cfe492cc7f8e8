// How the ranks that save or restore together stay together: an error of one is an error of all, and what rank 0 has
// read reaches those who may not see its disk. For Checkpoint; called by every rank of the group at the same places.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/io/checkpoint_folder.h"

namespace trireme::detail {

/// Every rank works. If any of them throws, all throw: that rank its own exception, the others one of the same kind
/// (UsageError, SystemError, PeerError) with "rank N: " in front; PeerError for other exceptions. `work` itself may
/// not communicate. A group of which this process is no member stands for this process alone.
void together(const Group& group, const std::function<void()>& work);
/// The same, but only rank 0 works.
void on_first(const Group& group, const std::function<void()>& work);

/// Rank 0's snapshot, on every rank. Tensors travel one by one, so that no rank holds them twice.
std::optional<io::Snapshot> share(std::optional<io::Snapshot> snapshot, const Group& group);

/// The text of each rank on rank 0, by rank; empty elsewhere.
std::vector<std::string> gather(const std::string& mine, const Group& group);
/// texts[rank], which only rank 0 has to give.
std::string scatter(const std::vector<std::string>& texts, const Group& group);

}  // namespace trireme::detail
