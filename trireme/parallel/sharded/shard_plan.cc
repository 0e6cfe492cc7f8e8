#include "trireme/parallel/sharded/shard_plan.h"

#include <algorithm>
#include <map>

namespace trireme::parallel {
namespace {

constexpr int64_t kAlignment = 64;  // bytes: a cache line, and what vector instructions like

int64_t round_up(int64_t value, int64_t step) {
  return (value + step - 1) / step * step;
}

int64_t elements_of(const UnitPlan& unit) {
  return unit.members.empty() ? 0 : unit.offsets.back() + unit.lengths.back();
}

}  // namespace

Range UnitPlan::piece(size_t member, int rank) const {
  const int64_t first = shard * rank - offsets[member];
  const auto within = [&](int64_t place) { return std::clamp(place, int64_t{0}, lengths[member]); };
  return {within(first), within(first + shard)};
}

std::vector<UnitPlan> plan_units(const std::vector<PlannedTensor>& tensors, int64_t bytes, int ranks) {
  std::vector<UnitPlan> units;
  std::map<int, size_t> open;  // kind -> the unit that takes the next tensor of it
  for (size_t i = 0; i < tensors.size(); ++i) {
    const PlannedTensor& tensor = tensors[i];
    const int64_t step = kAlignment / tensor.element_size;
    auto found = open.find(tensor.kind);
    const bool fits =
        found != open.end() &&
        (round_up(elements_of(units[found->second]), step) + tensor.elements) * tensor.element_size <= bytes;
    if (!fits) {
      found = open.insert_or_assign(tensor.kind, units.size()).first;
      units.emplace_back();
    }
    UnitPlan& unit = units[found->second];
    unit.offsets.push_back(round_up(elements_of(unit), step));
    unit.lengths.push_back(tensor.elements);
    unit.members.push_back(i);
  }
  for (UnitPlan& unit : units) {
    const int64_t step = kAlignment / tensors[unit.members[0]].element_size;
    unit.shard = round_up(round_up(elements_of(unit), ranks) / ranks, step);
  }
  return units;
}

}  // namespace trireme::parallel
