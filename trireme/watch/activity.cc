#include "trireme/watch/activity.h"

#include <fmt/format.h>

#include "trireme/core/text.h"

namespace trireme::watch {
namespace {

std::string step_words(const RankSnapshot& rank, const char* preposition) {
  return rank.step < 0 ? "" : fmt::format(" {} step {}", preposition, rank.step);
}

}  // namespace

bool has_ended(ProcessState state) {
  return state == ProcessState::exited || state == ProcessState::dead;
}

const GroupView* find_group(const RankSnapshot& rank, uint64_t id) {
  for (const GroupView& group : rank.groups)
    if (group.id == id) return &group;
  return nullptr;
}

std::vector<int> members_of(const GroupView& group) {
  if (!group.world) return group.ranks.size() == group.size ? group.ranks : std::vector<int>();
  std::vector<int> all(group.size);
  for (uint32_t rank = 0; rank < group.size; ++rank) all[rank] = static_cast<int>(rank);
  return all;
}

std::string seconds_words(int64_t ms) {
  return fmt::format("{} s", ms / 1000);
}

std::string group_words(const GroupView* group) {
  if (!group) return "";
  if (group->world && group->again == 0) return " of group 0";
  const std::vector<int> ranks = members_of(*group);
  if (ranks.empty()) return fmt::format(" of a group of {} ranks", group->size);
  // As in the group's name: "0-1#2".
  return fmt::format(" of the group of ranks {}{}", rank_list(ranks),
                     group->again == 0 ? "" : fmt::format(" (#{})", group->again));
}

std::string activity_words(const RankSnapshot* rank) {
  if (!rank) return "nothing is known about it";
  const std::string state = words_of(rank->state);
  const std::string phase = words_of(rank->phase);
  if (rank->state == ProcessState::stopped || has_ended(rank->state) || phase.empty())
    return state + step_words(*rank, "in");
  return fmt::format("{} for {}{}{}", phase, seconds_words(rank->phase_ms), step_words(*rank, "of"),
                     state.empty() ? "" : ", " + state);
}

std::string last_call_words(const RankSnapshot& rank) {
  const Call* last = nullptr;
  for (const Call& call : rank.calls)
    if (!last || call.age_ms < last->age_ms) last = &call;
  if (!last) return "; it has not called any operation";
  return fmt::format("; its last call was {}{}, {} ago", describe(*last), group_words(find_group(rank, last->group)),
                     seconds_words(last->age_ms));
}

}  // namespace trireme::watch
