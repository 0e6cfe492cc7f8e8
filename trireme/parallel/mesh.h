// The ranks of a group as a grid with named axes: along each axis the ranks split one thing.
//
//   Mesh mesh(world, {{"pipe", 2}, {"data", 2}, {"model", 2}});        // 8 ranks
//   DataParallel model(Net(), mesh["data"]);                          // averages with the one other rank of its line
//   if (mesh.rank("pipe") == 0) …                                     // this rank's place along an axis
//
//   pipe 0   data 0   model 0 1      ranks 0 1          The last axis varies fastest. Launchers number the ranks host by
//            data 1   model 0 1      ranks 2 3          host, so the axis that talks most belongs last: its ranks sit on
//   pipe 1   data 0   model 0 1      ranks 4 5          one host where they can.
//            data 1   model 0 1      ranks 6 7
//
// Everything that takes a Group takes a line of the mesh, so the ways of splitting work alone and together.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/group.h"

namespace trireme {

struct MeshAxis {
  std::string name = {};
  int size = -1;  ///< -1, for one axis at most: as many as the others leave
};

/// A small value; copies mean the same groups.
class Mesh {
 public:
  /// Called by all members of the group. UsageError when the sizes do not multiply to the group's, with both numbers;
  /// for an axis without a name, named twice, or of a size that cannot be.
  Mesh(const Group& group, std::vector<MeshAxis> axes);

  /// The ranks that differ from this one along this axis only, in its order. UsageError for a name that is not an axis.
  const Group& operator[](std::string_view axis) const;
  /// This rank's place along the axis.
  int rank(std::string_view axis) const;
  int size(std::string_view axis) const;

  /// This rank's place along every axis, in the order of the axes.
  const std::vector<int>& coordinate() const { return coordinate_; }
  /// "pipe 1, data 0, model 1"
  std::string describe() const;
  /// The ranks that differ from this one along these axes only, the last of them varying fastest. Called by all of them.
  Group flatten(const std::vector<std::string>& axes) const;

  /// With their sizes.
  const std::vector<MeshAxis>& axes() const { return axes_; }
  /// All ranks of the mesh.
  const Group& group() const { return group_; }

 private:
  size_t find(std::string_view axis) const;

  Group group_;
  std::vector<MeshAxis> axes_;
  std::vector<int> coordinate_;
  std::vector<Group> lines_;  // one for each axis
};

}  // namespace trireme
