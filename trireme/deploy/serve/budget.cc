#include "trireme/deploy/serve/budget.h"

#include <algorithm>

namespace trireme::serve {

std::optional<Budget::Share> Budget::take(size_t bytes, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const uint64_t ticket = next_ticket_++;
  line_.push_back(ticket);
  const auto my_turn = [&]() TRIREME_REQUIRES(mutex_) { return line_.front() == ticket && bytes <= free_; };
  bool mine = true;
  if (deadline.is_never())
    changed_.wait(lock, my_turn);
  else
    mine = changed_.wait_until(lock, deadline.time(), my_turn);
  line_.erase(std::find(line_.begin(), line_.end(), ticket));
  if (mine) free_ -= bytes;
  changed_.notify_all();  // the next in line may find enough
  if (!mine) return std::nullopt;
  return Share(this, bytes);
}

void Budget::give_back(size_t bytes) {
  {
    std::lock_guard lock(mutex_);
    free_ += bytes;
  }
  changed_.notify_all();
}

size_t Budget::used() const {
  std::lock_guard lock(mutex_);
  return total_ - free_;
}

size_t Budget::waiting() const {
  std::lock_guard lock(mutex_);
  return line_.size();
}

}  // namespace trireme::serve
