#include "trireme/comm/members.h"

#include <fmt/format.h>

#include "trireme/comm/group_state.h"

namespace trireme {

int world_rank(const Group& group, int member) {
  return group.ranks()[static_cast<size_t>(member)];
}

std::string place_of(const Group& group, int member) {
  const std::string& axis = group.state().axis;
  const int rank = world_rank(group, member);
  if (axis.empty()) return fmt::format("rank {}", rank);
  return fmt::format("rank {} ({} {} of {})", rank, axis, member, group.size());
}

std::string own_place(const Group& group) {
  return place_of(group, group.rank());
}

}  // namespace trireme
