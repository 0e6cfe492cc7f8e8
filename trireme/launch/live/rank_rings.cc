#include "trireme/launch/live/rank_rings.h"

#include <cerrno>

#include "trireme/core/error.h"
#include "trireme/core/log.h"

namespace trireme::launch {

RankRings::RankRings(const std::vector<int>& ranks) {
  for (const int rank : ranks) {
    Entry entry{.rank = rank, .file = watch::make_ring_file(rank), .ring = nullptr};
    entry.ring = watch::Ring::map(entry.file.get(), watch::Access::read);
    if (!entry.ring) throw SystemError(errno, "cannot map the memory that rank {} shares with its launcher", rank);
    entries_.push_back(std::move(entry));
  }
}

std::shared_ptr<const RankRings> RankRings::make(const std::vector<int>& ranks) try {
  return std::make_shared<const RankRings>(ranks);
} catch (const SystemError& error) {
  log_warning("{}; hangs are not noticed, and steps are not shown", error.what());
  return nullptr;
}

}  // namespace trireme::launch
