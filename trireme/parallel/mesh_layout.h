// Where ranks lie in a grid. Pure arithmetic; Mesh makes groups of it.
#pragma once

#include <cstddef>
#include <vector>

#include "trireme/parallel/mesh.h"

namespace trireme::parallel {

/// The axes with -1 replaced. UsageError: see Mesh.
std::vector<MeshAxis> complete_axes(std::vector<MeshAxis> axes, int ranks);
/// Where a rank lies in the grid, the last axis varying fastest.
std::vector<int> coordinate_of(int rank, const std::vector<MeshAxis>& axes);
/// The ranks that differ from `rank` along the axes of these indices only, the last of them varying fastest.
std::vector<int> ranks_along(const std::vector<size_t>& along, int rank, const std::vector<MeshAxis>& axes);

}  // namespace trireme::parallel
