#include "trireme/launch/live/straggler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace trireme::launch {
namespace {

using watch::Phase;

constexpr double kLeastDelay = 20;    // ms a step: less is noise
constexpr double kLeastPart = 0.2;    // of a step
constexpr double kLeastFactor = 1.5;  // against the slowest of the others
constexpr double kClearly = 1.25;     // a delay in a phase shows in later ones too, in which the others wait for it
constexpr Millis kSettled{10'000};
constexpr Millis kSayAgain{300'000};

struct Field {
  Phase phase;
  double PhaseTimes::*ms;
};
constexpr std::array<Field, 4> kFields{{{Phase::data, &PhaseTimes::data},
                                        {Phase::forward, &PhaseTimes::forward},
                                        {Phase::backward, &PhaseTimes::backward},
                                        {Phase::optimizer, &PhaseTimes::optimizer}}};

double delay(const Straggler& straggler) {
  return straggler.ms - straggler.others_ms;
}

std::optional<Straggler> slowest_in(const Field& field, const std::vector<RankView>& ranks) {
  const auto ms_of = [&](const RankView& rank) { return rank.phases.*field.ms; };
  const auto slowest =
      std::max_element(ranks.begin(), ranks.end(), [&](const auto& a, const auto& b) { return ms_of(a) < ms_of(b); });
  double next = 0, sum = 0;
  for (const RankView& rank : ranks) {
    if (ms_of(rank) < 0 || rank.ended) return std::nullopt;
    if (rank.rank == slowest->rank) continue;
    next = std::max(next, ms_of(rank));
    sum += ms_of(rank);
  }
  const double delay = ms_of(*slowest) - next;
  const double step_ms = slowest->steps_per_second > 0 ? 1000 / slowest->steps_per_second : 0;
  if (delay < std::max(kLeastDelay, kLeastPart * step_ms) || ms_of(*slowest) < kLeastFactor * next) return std::nullopt;
  return Straggler{slowest->rank, field.phase, ms_of(*slowest), sum / static_cast<double>(ranks.size() - 1)};
}

}  // namespace

std::optional<Straggler> find_straggler(const std::vector<RankView>& ranks) {
  std::optional<Straggler> found;
  if (ranks.size() < 2) return found;
  for (const Field& field : kFields) {
    const auto candidate = slowest_in(field, ranks);
    if (candidate && (!found || delay(*candidate) > kClearly * delay(*found))) found = candidate;
  }
  return found;
}

std::string describe(const Straggler& straggler) {
  return fmt::format("rank {} is slower than the others: {:.0f} ms a step {}, the others {:.0f} ms", straggler.rank,
                     straggler.ms, watch::words_of(straggler.phase), straggler.others_ms);
}

std::optional<std::string> StragglerWatch::note(const std::vector<RankView>& ranks, Clock::time_point now) {
  const auto straggler = find_straggler(ranks);
  const std::pair<int, Phase> who =
      straggler ? std::pair(straggler->rank, straggler->phase) : std::pair(-1, Phase::unknown);
  if (who != last_) {
    since_ = now;
    interval_ = Millis(0);
    again_ = now;
  }
  last_ = who;
  if (!straggler || now - since_ < kSettled || now < again_) return std::nullopt;
  interval_ = interval_.count() == 0 ? kSayAgain : 3 * interval_;
  again_ = now + interval_;
  return describe(*straggler);
}

}  // namespace trireme::launch
