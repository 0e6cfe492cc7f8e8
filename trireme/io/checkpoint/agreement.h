// What rank 0 has read reaches those who may not see its disk, and what they have reaches it. For Checkpoint; called by
// every rank of the group at the same places. A group of which this process is no member stands for this process alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/io/checkpoint_folder.h"

namespace trireme::detail {

/// Rank 0's snapshot, on every rank. Tensors travel one by one, so that no rank holds them twice.
std::optional<io::Snapshot> share(std::optional<io::Snapshot> snapshot, const Group& group);

/// The text of each rank on rank 0, by rank; empty elsewhere.
std::vector<std::string> gather(const std::string& mine, const Group& group);
/// texts[rank], which only rank 0 has to give.
std::string scatter(const std::vector<std::string>& texts, const Group& group);

}  // namespace trireme::detail
