#include "trireme/parallel/mesh.h"

#include <algorithm>
#include <set>

#include "trireme/comm/group_state.h"
#include "trireme/comm/members.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/parallel/mesh_layout.h"
#include "trireme/parallel/same_settings.h"

namespace trireme {
namespace parallel {
namespace {

std::string describe_sizes(const std::vector<MeshAxis>& axes) {
  std::vector<std::string> parts;
  for (const MeshAxis& axis : axes) parts.push_back(fmt::format("{} {}", axis.name, axis.size));
  return join(parts, " x ");
}

void check_axes(const std::vector<MeshAxis>& axes) {
  if (axes.empty()) throw UsageError("Mesh: no axes; name at least one, such as {{\"data\", -1}}");
  std::set<std::string_view> names;
  bool open = false;
  for (const MeshAxis& axis : axes) {
    if (axis.name.empty()) throw UsageError("Mesh: an axis of size {} has no name", axis.size);
    if (!names.insert(axis.name).second) throw UsageError("Mesh: axis '{}' is named twice", axis.name);
    if (axis.size == 0 || axis.size < -1)
      throw UsageError("Mesh: axis '{}' has size {}; it must be at least 1, or -1 for what is left", axis.name,
                       axis.size);
    if (axis.size == -1 && open)
      throw UsageError("Mesh: axis '{}' is the second of size -1; only one can be worked out", axis.name);
    open = open || axis.size == -1;
  }
}

// How far apart in rank two neighbours along each axis are.
std::vector<int> strides_of(const std::vector<MeshAxis>& axes) {
  std::vector<int> strides(axes.size(), 1);
  for (size_t i = axes.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * axes[i].size;
  return strides;
}

// The names of the axes whose lines reach over several hosts.
std::vector<std::string> axes_across_hosts(const Group& group, const std::vector<MeshAxis>& axes) {
  const Group::State& state = group.state();
  if (state.context->cards().empty()) return {};  // under mpirun the ranks have told each other nothing
  const std::vector<int> hosts = comm::hosts_of(state.context->cards(), state.ranks);
  std::vector<std::string> crossing;
  for (size_t i = 0; i < axes.size(); ++i)
    for (int rank = 0; rank < group.size(); ++rank) {
      const std::vector<int> line = ranks_along({i}, rank, axes);
      const auto host = [&](int member) { return hosts[static_cast<size_t>(member)]; };
      if (std::all_of(line.begin(), line.end(), [&](int member) { return host(member) == host(rank); })) continue;
      crossing.push_back(axes[i].name);
      break;
    }
  return crossing;
}

void log_placement(const Group& group, const std::vector<MeshAxis>& axes) {
  if (group.rank() != 0) return;
  const std::vector<std::string> crossing = axes_across_hosts(group, axes);
  if (!crossing.empty())
    log_info("mesh {} on {} ranks: {} {} over several hosts, the other axes stay within one", describe_sizes(axes),
             group.size(), join(crossing, " and "), crossing.size() == 1 ? "goes" : "go");
}

}  // namespace

std::vector<MeshAxis> complete_axes(std::vector<MeshAxis> axes, int ranks) {
  check_axes(axes);
  int64_t known = 1;
  for (const MeshAxis& axis : axes)
    if (axis.size != -1) known *= axis.size;
  const std::string given = describe_sizes(axes);
  for (MeshAxis& axis : axes) {
    if (axis.size != -1) continue;
    if (ranks % known != 0)
      throw UsageError("Mesh: {}: the sizes that are given multiply to {}, which does not divide the {} ranks", given,
                       known, ranks);
    axis.size = static_cast<int>(ranks / known);
    known = ranks;
  }
  if (known != ranks)
    throw UsageError("Mesh: {} makes {} places, but there are {} ranks; one size may be -1 for what is left", given,
                     known, ranks);
  return axes;
}

std::vector<int> coordinate_of(int rank, const std::vector<MeshAxis>& axes) {
  const std::vector<int> strides = strides_of(axes);
  std::vector<int> coordinate;
  for (size_t i = 0; i < axes.size(); ++i) coordinate.push_back(rank / strides[i] % axes[i].size);
  return coordinate;
}

std::vector<int> ranks_along(const std::vector<size_t>& along, int rank, const std::vector<MeshAxis>& axes) {
  const std::vector<int> strides = strides_of(axes);
  std::vector<int> ranks{rank};
  for (const size_t axis : along) ranks[0] -= coordinate_of(rank, axes)[axis] * strides[axis];
  for (const size_t axis : along) {
    std::vector<int> longer;
    for (const int start : ranks)
      for (int place = 0; place < axes[axis].size; ++place) longer.push_back(start + place * strides[axis]);
    ranks = std::move(longer);
  }
  return ranks;
}

}  // namespace parallel

Mesh::Mesh(const Group& group, std::vector<MeshAxis> axes)
    : group_(group),
      axes_(parallel::complete_axes(std::move(axes), group.size())),
      coordinate_(parallel::coordinate_of(group.rank(), axes_)) {
  parallel::require_same_settings("Mesh", {"axes " + parallel::describe_sizes(axes_)}, group_);
  for (size_t i = 0; i < axes_.size(); ++i)
    lines_.push_back(new_line(group_, parallel::ranks_along({i}, group_.rank(), axes_), axes_[i].name));
  parallel::log_placement(group_, axes_);
}

size_t Mesh::find(std::string_view axis) const {
  const auto found = std::find_if(axes_.begin(), axes_.end(), [&](const MeshAxis& one) { return one.name == axis; });
  if (found != axes_.end()) return static_cast<size_t>(found - axes_.begin());
  std::vector<std::string> names;
  for (const MeshAxis& one : axes_) names.push_back(one.name);
  throw UsageError("Mesh: there is no axis '{}'; the axes are {}", axis, join(names, ", "));
}

const Group& Mesh::operator[](std::string_view axis) const {
  return lines_[find(axis)];
}
int Mesh::rank(std::string_view axis) const {
  return coordinate_[find(axis)];
}
int Mesh::size(std::string_view axis) const {
  return axes_[find(axis)].size;
}

std::string Mesh::describe() const {
  std::vector<std::string> parts;
  for (size_t i = 0; i < axes_.size(); ++i) parts.push_back(fmt::format("{} {}", axes_[i].name, coordinate_[i]));
  return join(parts, ", ");
}

Group Mesh::flatten(const std::vector<std::string>& axes) const {
  std::vector<size_t> along;
  for (const std::string& axis : axes) {
    along.push_back(find(axis));
    if (std::count(along.begin(), along.end(), along.back()) > 1)
      throw UsageError("Mesh: flatten names axis '{}' twice", axis);
  }
  return group_.new_group(parallel::ranks_along(along, group_.rank(), axes_));
}

}  // namespace trireme
