#include "trireme/launch/live/job_totals.h"

#include <algorithm>

namespace trireme::launch {
namespace {

constexpr size_t kMinRanks = 2;  // of which one can be the slowest

void add_to(JobTotals& totals, const RankView& rank) {
  if (rank.goal.last_step > 0 && (totals.goal.last_step == 0 || rank.step < totals.step)) totals.goal = rank.goal;
  totals.step = totals.step < 0 || rank.step < 0 ? std::max(totals.step, rank.step) : std::min(totals.step, rank.step);
  if (rank.steps_per_second >= 0)
    totals.steps_per_second =
        totals.steps_per_second < 0 ? rank.steps_per_second : std::min(totals.steps_per_second, rank.steps_per_second);
  if (rank.samples_per_second >= 0)
    totals.samples_per_second = std::max(0.0, totals.samples_per_second) + rank.samples_per_second;
  for (const auto& [name, value] : rank.values) totals.values.emplace(name, value);
  for (const auto& [name, operation] : rank.operations) {
    OperationTotals& sum = totals.operations[name];
    sum.count += operation.count;
    sum.bytes += operation.bytes;
    sum.seconds += operation.seconds;
  }
}

// The rank that waits least for the others: they wait for it. Only where the difference is large.
std::optional<int> slowest_of(const std::vector<const RankView*>& ranks) {
  constexpr double kClear = 0.15;
  if (ranks.size() < kMinRanks) return std::nullopt;
  const auto waits = [](const RankView* rank) { return rank->shares.communication; };
  const auto least =
      std::min_element(ranks.begin(), ranks.end(), [&](auto* a, auto* b) { return waits(a) < waits(b); });
  double others = 0;
  for (const RankView* rank : ranks) others += rank == *least ? 0 : waits(rank);
  others /= static_cast<double>(ranks.size() - 1);
  return others - waits(*least) > kClear ? std::optional((*least)->rank) : std::nullopt;
}

Shares mean_shares(const std::vector<const RankView*>& ranks) {
  Shares mean;
  for (const RankView* rank : ranks) {
    const double part = 1 / static_cast<double>(ranks.size());
    mean.compute += rank->shares.compute * part;
    mean.communication += rank->shares.communication * part;
    mean.data += rank->shares.data * part;
    mean.background += rank->shares.background * part;
  }
  return mean;
}

// The shares of a rank that has ended are old: they count only when all ranks have ended.
std::vector<const RankView*> ranks_with_shares(const std::vector<RankView>& ranks) {
  std::vector<const RankView*> recording, running;
  for (const RankView& rank : ranks) {
    if (rank.records) recording.push_back(&rank);
    if (rank.records && !rank.ended) running.push_back(&rank);
  }
  return running.empty() ? recording : running;
}

}  // namespace

JobTotals totals_of(const std::vector<RankView>& ranks) {
  JobTotals totals;
  for (const RankView& rank : ranks)
    if (rank.records) add_to(totals, rank);
  const std::vector<const RankView*> counted = ranks_with_shares(ranks);
  totals.shares = mean_shares(counted);
  totals.slowest = slowest_of(counted);
  return totals;
}

std::optional<double> seconds_left(const JobTotals& totals) {
  if (totals.step < 0 || totals.goal.last_step <= 0 || totals.steps_per_second <= 0) return std::nullopt;
  return static_cast<double>(std::max<int64_t>(0, totals.goal.last_step - totals.step)) / totals.steps_per_second;
}

}  // namespace trireme::launch
