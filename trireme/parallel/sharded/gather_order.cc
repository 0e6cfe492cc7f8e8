#include "trireme/parallel/sharded/gather_order.h"

#include <utility>

namespace trireme::parallel {

void GatherOrder::use(size_t unit) {
  if (!now_.empty() && now_.back() == unit) return;
  follows_ = follows_ && now_.size() < last_.size() && last_[now_.size()] == unit;
  now_.push_back(unit);
}

std::optional<size_t> GatherOrder::next() const {
  if (!follows_ || now_.size() >= last_.size()) return std::nullopt;
  return last_[now_.size()];
}

void GatherOrder::end_of_step() {
  last_ = std::exchange(now_, {});
  follows_ = true;
}

}  // namespace trireme::parallel
