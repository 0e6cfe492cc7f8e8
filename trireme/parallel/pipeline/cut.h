// Where a list of layers is cut into stages.
#pragma once

#include <vector>

namespace trireme::parallel {

/// The first layer of each stage, and the number of layers at the end. Stages are runs of neighbours and none is empty:
/// there must be at least as many layers as stages.
using Cuts = std::vector<int>;

/// As equal as can be; the first stages have one more.
Cuts cut_evenly(int layers, int stages);
/// So that the heaviest stage is as light as can be.
Cuts cut_by_weight(const std::vector<double>& weights, int stages);

}  // namespace trireme::parallel
