#include "trireme/watch/stillness.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "trireme/core/text.h"
#include "trireme/watch/activity.h"

namespace trireme::watch {
namespace {

constexpr int64_t kPatience = 10;  // with an evaluation or a save

bool is_stopped(const RankSnapshot& rank) {
  return rank.state == ProcessState::stopped;
}

// For how long the rank has been still; less than `enough`: it may move.
int64_t still_ms(const RankSnapshot& rank) {
  if (is_stopped(rank)) return rank.stopped_ms;
  if (rank.state == ProcessState::traced) return 0;  // a person looks at it
  const bool may_be_long = rank.phase == Phase::evaluation || rank.phase == Phase::save;
  return may_be_long ? rank.still_ms / kPatience : rank.still_ms;
}

using Ranks = std::vector<const RankSnapshot*>;

Ranks alive_among(const std::vector<RankSnapshot>& ranks) {
  Ranks alive;
  for (const RankSnapshot& rank : ranks)
    if (!has_ended(rank.state)) alive.push_back(&rank);
  std::sort(alive.begin(), alive.end(), [](const auto* a, const auto* b) { return a->rank < b->rank; });
  return alive;
}

// Ranks that do the same are told together, with the time of the first.
std::string still_words(const Ranks& alive) {
  std::map<std::tuple<bool, Phase, int64_t>, Ranks> alike;
  for (const RankSnapshot* rank : alive) alike[{!is_stopped(*rank), rank->phase, rank->step}].push_back(rank);
  std::vector<std::string> parts;
  for (const auto& [what, together] : alike) {
    std::vector<int> numbers;
    for (const RankSnapshot* rank : together) numbers.push_back(rank->rank);
    parts.push_back(fmt::format("{} ({})", ranks_words(numbers), activity_words(together.front())));
  }
  return join_some(parts, 4, ", ");
}

std::string advice_for(const RankSnapshot& culprit) {
  if (is_stopped(culprit)) return "It got SIGSTOP or a similar signal: `kill -CONT` lets it go on.";
  if (culprit.phase == Phase::data)
    return "Its dataset does not deliver: is the storage slow or gone, or does a sample never end?";
  if (culprit.state == ProcessState::disk) return "It waits for a disk or a network file system.";
  return "It may only compute for long: watch::report() or a PhaseScope in that part shows that it goes on.";
}

// A stopped rank says most, then one that loads data.
const RankSnapshot& culprit_among(const Ranks& alive) {
  const auto certainty = [](const RankSnapshot* rank) {
    return is_stopped(*rank) ? 2 : rank->phase == Phase::data ? 1 : 0;
  };
  return **std::max_element(alive.begin(), alive.end(),
                            [&](const auto* a, const auto* b) { return certainty(a) < certainty(b); });
}

}  // namespace

Verdict judge_stillness(const std::vector<RankSnapshot>& ranks, const StillnessOptions& options) {
  const Ranks alive = alive_among(ranks);
  if (alive.empty() || ranks.size() < static_cast<size_t>(options.world_size)) return {};
  int64_t shortest = still_ms(*alive.front());
  for (const RankSnapshot* rank : alive) shortest = std::min(shortest, still_ms(*rank));
  if (shortest < std::max<int64_t>(options.still_ms, 1)) return {};
  const RankSnapshot& culprit = culprit_among(alive);
  Verdict result{.kind = Verdict::Kind::still, .culprit = culprit.rank, .waited_ms = shortest};
  result.words = fmt::format("nothing has moved since {}: {}{}", seconds_words(shortest), still_words(alive),
                             alive.size() < ranks.size() ? "; the others have ended" : "");
  for (const RankSnapshot* rank : alive)
    result.details.push_back(fmt::format("rank {}: {}{}", rank->rank, activity_words(rank), last_call_words(*rank)));
  result.advice = advice_for(culprit);
  return result;
}

}  // namespace trireme::watch
