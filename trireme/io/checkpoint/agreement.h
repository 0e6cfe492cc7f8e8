// Moves what rank 0 has read to the ranks that cannot see its disk, and what they have to rank 0. For Checkpoint; every
// rank of the group makes the same calls. A group that this process is not a member of means this process alone.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/io/checkpoint_folder.h"

namespace trireme::detail {

/// Rank 0's snapshot, on every rank, with tensors that have no values (on the device Meta).
std::optional<io::Snapshot> share_layout(const std::optional<io::Snapshot>& snapshot, const Group& group);
/// Then its tensors, one at a time. Rank 0 gives `snapshot`, which is emptied on the way. `use` must not throw.
void share_tensors(
    std::optional<io::Snapshot>& snapshot, const io::Snapshot& layout, const Group& group,
    const std::function<void(const std::string& file, const std::string& name, const torch::Tensor& tensor)>& use);

/// The text of each rank on rank 0, by rank; empty elsewhere.
std::vector<std::string> gather(const std::string& mine, const Group& group);
/// texts[rank], which only rank 0 has to give.
std::string scatter(const std::vector<std::string>& texts, const Group& group);

}  // namespace trireme::detail
