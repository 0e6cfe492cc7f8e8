// Groups made of the members of another one, and what errors call a member.
//
//   const Group own = duplicate(mesh["data"]);
//   throw UsageError("{}: …", own_place(own));                // "rank 6 (data 1 of 2)"; in the world "rank 6"
//
// Internal to the library.
#pragma once

#include <string>
#include <vector>

#include "trireme/comm/group.h"

namespace trireme {

/// The same members, with connections and an order of operations of their own. Called by all of them.
Group duplicate(const Group& group);

/// As Group::new_group(), for a line of a mesh along this axis.
Group new_line(const Group& group, const std::vector<int>& ranks, const std::string& axis);

/// The rank in the world of a member of the group.
int world_rank(const Group& group, int member);

/// A member by its rank in the world, and by its place on the axis when the group is a line of a mesh.
std::string place_of(const Group& group, int member);
std::string own_place(const Group& group);

}  // namespace trireme
