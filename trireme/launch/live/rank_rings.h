// The memory files of a node's ranks, one each, and the launcher's view of them (watch/ring.h).
//
//   const RankRings rings({0, 1});
//   spec.inherited.push_back(rings.fd(0));
//   for (const RankRings::Entry& entry : rings.entries()) read(*entry.ring);
//
// Thread rule: all from any thread, as nothing changes after the constructor.
#pragma once

#include <memory>
#include <vector>

#include "trireme/core/fd.h"
#include "trireme/watch/ring.h"

namespace trireme::launch {

class RankRings {
 public:
  struct Entry {
    int rank = 0;
    UniqueFd file;
    std::unique_ptr<watch::Ring> ring;
  };

  /// Throws SystemError.
  explicit RankRings(const std::vector<int>& ranks);
  const std::vector<Entry>& entries() const { return entries_; }
  /// What worker `place` inherits.
  int fd(size_t place) const { return entries_.at(place).file.get(); }

  /// Nothing, and a warning, where the memory cannot be made.
  static std::shared_ptr<const RankRings> make(const std::vector<int>& ranks);

 private:
  std::vector<Entry> entries_;
};

}  // namespace trireme::launch
