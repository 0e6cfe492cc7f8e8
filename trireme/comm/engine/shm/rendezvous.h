// How the ranks of a group share one segment. They know only a Store in common.
//
//   auto segment = meet(store, "group 7/", {.rank = 1, .size = 2}, {.ranks = 2, .piece_bytes = 1 << 19}, {}, deadline);
//
// Rank 0 makes the file and says where it is; everyone opens it and answers; rank 0 gives its verdict: go, or try the
// next kind of file, or fail with the reason. No rank uses a segment that another could not open.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/engine/shm/segment.h"
#include "trireme/core/deadline.h"
#include "trireme/core/rank_info.h"
#include "trireme/store/store.h"

namespace trireme::comm::shm {

enum class FileKind { anonymous, named };

/// What to try, in this order.
using FileKinds = std::vector<FileKind>;
inline const FileKinds kAllFileKinds = {FileKind::anonymous, FileKind::named};

/// Call on every rank with the same prefix, which must be new in this store. The prefix must end where rank numbers can
/// follow ("…/"). PeerError: a rank did not come by the deadline, or could not open the memory (it says which and why).
/// SystemError on rank 0 when there is no memory.
std::shared_ptr<Segment> meet(Store& store, const std::string& prefix, RankInfo me, const Shape& shape,
                              const FileKinds& kinds, Deadline deadline);

/// Waits for a key of the store and returns its value, or throws when it is not worth waiting any longer.
using WaitForKey = std::function<std::string(const std::string& key)>;
/// The same, for a caller that watches something else while it waits.
std::shared_ptr<Segment> meet(Store& store, const std::string& prefix, RankInfo me, const Shape& shape,
                              const FileKinds& kinds, const WaitForKey& wait);

}  // namespace trireme::comm::shm
