// Which rank is on which host, and at which place there. Pure: made from one list.
//
//   Topology topology({0, 1, 0, 1});          // ranks 0 and 2 on host 0, ranks 1 and 3 on host 1
//   topology.place_of(3);                     // 1: the second of its host
//   topology.column(0);                       // ranks 0 and 1: the first of every host
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace trireme::comm {

class Topology {
 public:
  /// The host of each rank, counted from 0 in order of first appearance; anything else is a UsageError.
  explicit Topology(std::vector<int> host_of);

  int ranks() const { return static_cast<int>(host_of_.size()); }
  int hosts() const { return static_cast<int>(members_.size()); }
  int host_of(int rank) const { return host_of_[static_cast<size_t>(rank)]; }
  /// How many ranks of its host come before it.
  int place_of(int rank) const { return place_of_[static_cast<size_t>(rank)]; }
  /// The ranks of a host, in rank order: place p is members(host)[p].
  const std::vector<int>& members(int host) const { return members_[static_cast<size_t>(host)]; }
  /// The ranks with this place on their hosts, in host order; hosts with fewer ranks have none.
  std::vector<int> column(int place) const;
  /// Whether every host has equally many ranks.
  bool even() const;
  /// Whether every host has a rank at this place.
  bool is_full(int place) const;

 private:
  std::vector<int> host_of_;
  std::vector<int> place_of_;
  std::vector<std::vector<int>> members_;
};

/// "rank 3" or "ranks 2, 3".
std::string name_ranks(const std::vector<int>& ranks);

}  // namespace trireme::comm
