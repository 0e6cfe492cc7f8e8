// The rank at fault when a group fails, and why, in a form that travels between the ranks.
//
//   store.set("aborted", encode(Blame{.rank = 2, .reason = "rank 2 (process 123) died"}));
//   const Blame blame = decode_blame(store.get("aborted", deadline));
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trireme/core/error.h"

namespace trireme::comm {

struct Blame {
  std::optional<int> rank{};  ///< by its number in the group; nothing when it is not known
  std::string reason{};       ///< "" where no rank is to blame

  bool empty() const { return reason.empty(); }
  bool operator==(const Blame&) const = default;
};

inline PeerError error_of(const Blame& blame) {
  return PeerError({.rank = blame.rank, .reason = blame.reason});
}

std::string encode(const Blame& blame);
/// A text that is not from encode() is a reason without a rank.
Blame decode_blame(std::string_view text);

}  // namespace trireme::comm
