// The words in which verdict.cc and stillness.cc tell what a rank does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/watch/snapshot.h"

namespace trireme::watch {

bool has_ended(ProcessState state);

/// Null: the rank does not list it.
const GroupView* find_group(const RankSnapshot& rank, uint64_t id);
/// Ranks of the world; empty: not known.
std::vector<int> members_of(const GroupView& group);

/// "61 s".
std::string seconds_words(int64_t ms);
/// " of group 0", " of the group of ranks 0, 2"; "" for null.
std::string group_words(const GroupView* group);
/// What a rank does that does not wait: "loading data for 61 s of step 16, sleeping". Null: nothing is known about it.
std::string activity_words(const RankSnapshot* rank);
/// "; its last call was all_reduce #16 of group 0, 61 s ago".
std::string last_call_words(const RankSnapshot& rank);

}  // namespace trireme::watch
