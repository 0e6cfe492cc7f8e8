// Error texts of a part of a group, in the numbers of the whole group.
//
//   in_group_numbers("rank 1 died, ranks 0 and 2 live", {4, 5, 6});     // "rank 5 died, ranks 4 and 6 live"
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// Marks the rest of a text as speaking of the whole group already: in_group_numbers() leaves it as it is, and takes
/// the mark away.
inline constexpr std::string_view kWholeGroup = "[whole group] ";

/// Rank k of the part is rank members[k] of the group. Numbers that are none of the part's ranks stay.
std::string in_group_numbers(std::string_view text, const std::vector<int>& members);

/// "rank 3" or "ranks 2, 3".
std::string name_ranks(const std::vector<int>& ranks);

}  // namespace trireme
