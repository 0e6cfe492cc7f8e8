// Which ranks of a job have ended with exit code 0, and which ranks gave up waiting: launchers and ranks tell each
// other through the job's store. Only a launcher knows how a rank ended; only a rank knows which ranks it waits for.
//
//   EndedRanks ended(store, attempt);
//   ended.note_end(1, "how and where, in the launchers' own words");       // rank 1's launcher
//   ended.list().contains(1);                                              // a rank that waits for rank 1
//   ended.note_wait({.rank = 0, .operation = "new_group", .ranks = {1}});  // that rank, before it throws a PeerError
//   ended.wait_of(0);                                                      // a launcher that looks for the culprit
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/store/store.h"

namespace trireme::store {

/// Thread rule: that of the store.
class EndedRanks {
 public:
  /// What a rank waited for when it gave up.
  struct Wait {
    int rank = 0;              ///< which rank waited
    std::string operation;     ///< "new_group", "all_reduce"
    std::vector<int> ranks{};  ///< for which ranks of the world
    bool operator==(const Wait&) const = default;
  };

  /// `attempt` is the number of the job's restart: each has its own keys.
  EndedRanks(std::shared_ptr<Store> store, int attempt);

  /// A rank has ended with exit code 0.
  void note_end(int rank, const std::string& how);
  /// The ranks that have, and how.
  std::map<int, std::string> list();

  /// Never throws: where the store is lost, a PeerError is under way already.
  void note_wait(const Wait& wait) noexcept;
  /// The rank's latest note, or nothing. PeerError when it cannot be read.
  std::optional<Wait> wait_of(int rank);
  /// Every rank's.
  std::vector<Wait> waits();

 private:
  const std::shared_ptr<Store> store_;
  const std::string end_prefix_;
  const std::string wait_prefix_;
};

}  // namespace trireme::store
