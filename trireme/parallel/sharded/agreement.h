// What the ranks of a sharded model are about to do, compared before they do it: they would wait for each other, or each
// go on with other weights.
//
//   agreement.require_same({.action = "use parameter fc.weight", .stepped = true});
//
// 16 bytes when all agree. When they do not, the ranks tell each other more, and every one throws the same UsageError.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/group.h"
#include "trireme/parallel/roll_call.h"

namespace trireme::parallel {

/// A parameter that a rank has written to by itself, and the checksum of what it is now.
using Write = std::pair<std::string, int64_t>;

struct Intent {
  std::string complaint = {};  ///< this rank cannot go on: why
  std::string action;          ///< "use parameter fc.weight", "run backward()"
  std::string advice = {};     ///< for ranks that act differently
  bool stepped = false;        ///< an optimizer has changed this rank's pieces since the last backward
  uint64_t model = 0;          ///< ModelParameters::fingerprint(), or 0
  std::vector<Write> writes = {};
};

/// Thread rule: one thread at a time.
class Agreement {
 public:
  explicit Agreement(Group group) : group_(std::move(group)), roll_call_(group_) {}
  /// Called by every rank.
  void require_same(const Intent& mine);

 private:
  [[noreturn]] void explain(const Intent& mine) const;

  Group group_;
  RollCall roll_call_;
};

}  // namespace trireme::parallel
