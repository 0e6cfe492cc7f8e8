// Which parts of an address range are free: neighbours are merged, and a request gets the smallest range that is large
// enough.
//
//   FreeRanges free;
//   free.insert(0, 1000);
//   auto place = free.take(300);                // 0; [300, 1000) stays
//   free.insert(*place, 300);                   // [0, 1000) again
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace trireme::comm::shm {

/// Not thread-safe.
class FreeRanges {
 public:
  /// The range must not overlap what is free.
  void insert(size_t begin, size_t size);
  /// The beginning of `size` (not 0) that are free no longer; among equally good ranges the first. Nothing when no
  /// range is large enough.
  std::optional<size_t> take(size_t size);
  /// The size of the largest range; 0 when nothing is free.
  size_t largest() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }
  size_t total() const { return total_; }
  size_t count() const { return size_at_.size(); }

 private:
  void add(size_t begin, size_t size);
  void remove(std::map<size_t, size_t>::iterator range);

  std::map<size_t, size_t> size_at_;             // by beginning
  std::set<std::pair<size_t, size_t>> by_size_;  // the same ranges: size, beginning
  size_t total_ = 0;
};

}  // namespace trireme::comm::shm
