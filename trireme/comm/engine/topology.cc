#include "trireme/comm/engine/topology.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "trireme/core/error.h"

namespace trireme::comm {

Topology::Topology(std::vector<int> host_of) : host_of_(std::move(host_of)) {
  for (int rank = 0; rank < ranks(); ++rank) {
    const int host = this->host_of(rank);
    if (host < 0 || host > hosts())
      throw UsageError(
          "host_of[{}] is {}: hosts are counted from 0 in order of first appearance, so 0 to {} are possible", rank,
          host, hosts());
    if (host == hosts()) members_.emplace_back();
    std::vector<int>& host_ranks = members_[static_cast<size_t>(host)];
    place_of_.push_back(static_cast<int>(host_ranks.size()));
    host_ranks.push_back(rank);
  }
}

std::vector<int> Topology::column(int place) const {
  std::vector<int> ranks;
  for (const std::vector<int>& host_ranks : members_)
    if (static_cast<size_t>(place) < host_ranks.size()) ranks.push_back(host_ranks[static_cast<size_t>(place)]);
  return ranks;
}

bool Topology::even() const {
  return std::all_of(members_.begin(), members_.end(),
                     [this](const auto& host_ranks) { return host_ranks.size() == members_[0].size(); });
}

bool Topology::is_full(int place) const {
  return std::all_of(members_.begin(), members_.end(),
                     [place](const auto& host_ranks) { return static_cast<size_t>(place) < host_ranks.size(); });
}

std::string name_ranks(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace trireme::comm
