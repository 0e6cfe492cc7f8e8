#include "trireme/parallel/pipeline/cut.h"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace trireme::parallel {

Cuts cut_evenly(int layers, int stages) {
  Cuts cuts{0};
  for (int stage = 0; stage < stages; ++stage)
    cuts.push_back(cuts.back() + layers / stages + (stage < layers % stages ? 1 : 0));
  return cuts;
}

Cuts cut_by_weight(const std::vector<double>& weights, int stages) {
  const size_t layers = weights.size(), parts = static_cast<size_t>(stages);
  std::vector<double> before{0};  // the weight of all layers before each
  for (const double weight : weights) before.push_back(before.back() + weight);
  // heaviest[k][n]: of the first n layers in k stages, the weight of the heaviest; from[k][n]: where the last one begins.
  const std::vector<double> never(layers + 1, std::numeric_limits<double>::infinity());
  std::vector<std::vector<double>> heaviest(parts + 1, never);
  std::vector<std::vector<size_t>> from(parts + 1, std::vector<size_t>(layers + 1, 0));
  heaviest[0][0] = 0;
  for (size_t k = 1; k <= parts; ++k)
    for (size_t n = k; n <= layers; ++n)
      for (size_t begin = k - 1; begin < n; ++begin) {
        const double weight = std::max(heaviest[k - 1][begin], before[n] - before[begin]);
        if (weight < heaviest[k][n]) {
          heaviest[k][n] = weight;
          from[k][n] = begin;
        }
      }
  Cuts cuts(parts + 1);
  size_t end = layers;
  for (size_t k = parts; k > 0; --k) {
    cuts[k] = static_cast<int>(end);
    end = from[k][end];
  }
  return cuts;
}

}  // namespace trireme::parallel
