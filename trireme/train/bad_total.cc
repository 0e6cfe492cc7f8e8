#include "trireme/train/bad_total.h"

#include <set>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/text.h"

namespace trireme::train {

BadTotal::BadTotal(std::shared_ptr<const data::Dataset> dataset, std::string what)
    : dataset_(std::move(dataset)), what_(std::move(what)) {}

int64_t BadTotal::look(RankInfo me, const Gather& gather) {
  const data::BadSamples mine = dataset_->bad();
  if (mine.samples == 0) return 0;
  std::set<double> different;
  for (const std::vector<double>& one : gather({mine.numbers.begin(), mine.numbers.end()}))
    different.insert(one.begin(), one.end());
  const auto total = static_cast<int64_t>(different.size());
  if (total > mine.allowed || total == mine.samples) refuse(mine, me, total);
  if (total > told_ && me.rank == 0)
    log_warning("{}: {} of {} samples could not be used so far, on all ranks together; {} are allowed", what_, total,
                mine.samples, mine.allowed);
  told_ = total;
  return total;
}

void BadTotal::refuse(const data::BadSamples& mine, RankInfo me, int64_t total) const {
  throw UsageError(
      "{}: {} of {} samples could not be used, on all ranks together; {} are allowed (bad_share and bad_at_least "
      "of the dataset). Mend them or take them out of the list. Of those that rank {} met:\n  {}",
      what_, total, mine.samples, mine.allowed, me.rank, mine.first.empty() ? "none" : join(mine.first, "\n  "));
}

}  // namespace trireme::train
