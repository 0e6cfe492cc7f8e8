#include "trireme/launch/machine/affinity.h"

#include <algorithm>

namespace trireme::launch {
namespace {

std::vector<int> share_of(const std::vector<int>& cores, size_t worker, size_t workers) {
  const size_t begin = worker * cores.size() / workers;
  const size_t end = (worker + 1) * cores.size() / workers;
  if (begin == end) return {cores[begin]};  // more workers than cores
  return {cores.begin() + static_cast<std::ptrdiff_t>(begin), cores.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace

std::vector<std::vector<int>> share_cores(Bind bind, const Topology& topology, int workers) {
  const auto count = static_cast<size_t>(workers);
  std::vector<std::vector<int>> shares(count);
  std::vector<int> all;
  for (const auto& group : topology) all.insert(all.end(), group.begin(), group.end());
  if (bind == Bind::none || all.empty()) return shares;
  for (size_t worker = 0; worker < count; ++worker)
    shares[worker] = bind == Bind::core ? share_of(all, worker, count)
                                        : topology[worker * topology.size() / std::max(count, topology.size())];
  return shares;
}

}  // namespace trireme::launch
