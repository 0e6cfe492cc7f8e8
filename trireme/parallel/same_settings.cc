#include "trireme/parallel/same_settings.h"

#include <algorithm>

#include "trireme/comm/collectives.h"
#include "trireme/comm/members.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::parallel {
namespace {

constexpr char kNextRank = '\f';

// Of each rank its name, then its settings, one a line.
void compare(const char* who, const std::vector<std::string>& ranks) {
  const std::vector<std::string> first = split(ranks[0], '\n');
  for (const std::string& rank : ranks) {
    const std::vector<std::string> other = split(rank, '\n');
    for (size_t i = 1; i < std::max(first.size(), other.size()); ++i) {
      const std::string one = i < first.size() ? first[i] : "nothing more",
                        two = i < other.size() ? other[i] : "nothing more";
      if (one != two)
        throw UsageError("{}: {} has {}, but {} has {}; give every rank the same", who, first[0], one, other[0], two);
    }
  }
}

std::string named(const std::string& name, const std::vector<std::string>& mine) {
  return fmt::format("{}\n{}", name, join(mine, "\n"));
}

}  // namespace

void require_same_settings(const char* who, const std::vector<std::string>& mine, const Group& group) {
  if (group.size() <= 1) return;
  compare(who, all_gather_object(named(own_place(group), mine), group));
}

// Each rank learns what all along its pipe have, then what those along its data axis have learnt: so all throw, or none.
void require_same_settings(const char* who, const std::vector<std::string>& mine, const Group& pipe,
                           const Group& data) {
  const bool has_data = data.is_member() && data.size() > 1;
  const std::string next(1, kNextRank);
  std::string all = join(all_gather_object(named(own_place(pipe), mine), pipe), next);
  if (has_data) all = join(all_gather_object(all, data), next);
  compare(who, split(all, kNextRank));
}

}  // namespace trireme::parallel
