#include "trireme/comm/engine/shm/free_ranges.h"

#include <iterator>

namespace trireme::comm::shm {

void FreeRanges::add(size_t begin, size_t size) {
  size_at_.emplace(begin, size);
  by_size_.emplace(size, begin);
  total_ += size;
}

void FreeRanges::remove(std::map<size_t, size_t>::iterator range) {
  total_ -= range->second;
  by_size_.erase({range->second, range->first});
  size_at_.erase(range);
}

void FreeRanges::insert(size_t begin, size_t size) {
  auto next = size_at_.lower_bound(begin);
  if (next != size_at_.end() && begin + size == next->first) {
    size += next->second;
    remove(next);
  }
  next = size_at_.lower_bound(begin);
  if (next != size_at_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      begin = before->first;
      size += before->second;
      remove(before);
    }
  }
  add(begin, size);
}

std::optional<size_t> FreeRanges::take(size_t size) {
  const auto found = by_size_.lower_bound({size, 0});
  if (found == by_size_.end()) return std::nullopt;
  const auto [whole, begin] = *found;
  remove(size_at_.find(begin));
  if (whole > size) add(begin + size, whole - size);
  return begin;
}

}  // namespace trireme::comm::shm
