// What could not be used of a dataset, over all ranks. Each rank meets its own share of the bad samples, and in another
// epoch perhaps the same as another rank: the different ones are counted.
//
//   BadTotal bad(dataset, "training");
//   bad.look(me, [&](const auto& mine) { return ranks.numbers_of_all(mine); });        // at every epoch's end, say
//
// For one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/core/rank_info.h"
#include "trireme/data/dataset.h"

namespace trireme::train {

class BadTotal {
 public:
  /// The numbers of each rank, by rank.
  using Gather = std::function<std::vector<std::vector<double>>(const std::vector<double>& mine)>;

  /// `what`: the name of the dataset in messages.
  BadTotal(std::shared_ptr<const data::Dataset> dataset, std::string what);

  /// Called by every rank at the same places; gathers nothing for a dataset without bad samples (BadSamples::samples is
  /// 0). Rank 0 warns with the total whenever it has grown. UsageError on every rank when more are bad than allowed, or
  /// all. Returns the total.
  int64_t look(RankInfo me, const Gather& gather);

 private:
  [[noreturn]] void refuse(const data::BadSamples& mine, RankInfo me, int64_t total) const;

  std::shared_ptr<const data::Dataset> dataset_;
  std::string what_;
  int64_t told_ = 0;
};

}  // namespace trireme::train
