// What a launcher knows about one rank at a moment: its ring and its process. Times are ages in milliseconds, so that
// snapshots of several machines can be put side by side.
//
//   RankSnapshot rank = take_snapshot(*ring, now_ns());
//   store.set(key, to_json({rank}));                    // for the launchers of the other machines
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/watch/process_state.h"
#include "trireme/watch/ring.h"

namespace trireme::watch {

/// An operation of a group, as a rank called it.
struct Call {
  uint64_t group = 0;
  uint64_t number = 0;  ///< see CallRecord
  std::string operation = {};
  std::string dtype = {};
  std::string reduce = {};
  uint64_t elements = 0;
  uint64_t digest = 0;
  std::vector<uint64_t> sizes = {};  ///< the first few
  uint32_t size_count = 0;
  int root = -1;
  int peer = -1;  ///< not -1: a message
  bool blocking = false;
  bool open = true;    ///< not ended
  int64_t age_ms = 0;  ///< since it began
  bool operator==(const Call&) const = default;

  bool is_message() const { return peer >= 0; }
};

/// "all_reduce #17 float[1000]", "broadcast #3 int64[5] from rank 2", "new_group", "recv float[10] from rank 1".
std::string describe(const Call& call);

struct GroupView {
  uint64_t id = 0;
  bool world = false;  ///< all ranks of the job; `ranks` is empty then
  uint32_t size = 0;
  uint32_t again = 0;           ///< how many groups of the same ranks were made before
  std::vector<int> ranks = {};  ///< of the world, ascending; not known when these are not `size`
  uint64_t begun = 0;           ///< see GroupProgress
  bool operator==(const GroupView&) const = default;
};

struct RankSnapshot {
  int rank = 0;
  ProcessState state = ProcessState::unknown;
  int64_t stopped_ms = 0;  ///< for how long it has been stopped
  int64_t step = -1;       ///< -1: not known
  Phase phase = Phase::unknown;
  int64_t phase_ms = 0;
  int64_t still_ms = -1;  ///< since it last moved (stillness.h); -1: it has never recorded anything
  std::vector<GroupView> groups = {};
  std::vector<Call> calls = {};  ///< the open ones, and the last of each group
  bool operator==(const RankSnapshot&) const = default;
};

/// What the ring tells, its rank included, at `now` (as of now_ns()). No wait is older than `observed_ms`, for which
/// the launcher has been looking without a break: a launcher that was stopped has not seen that a rank waited.
RankSnapshot take_snapshot(const Ring& ring, int64_t now, int64_t observed_ms);

/// The age of the oldest open call, 0 when there is none.
int64_t longest_wait_ms(const std::vector<RankSnapshot>& ranks);

std::string to_json(const std::vector<RankSnapshot>& ranks);
/// Throws PeerError when the text is not from to_json().
std::vector<RankSnapshot> snapshots_from_json(const std::string& text);

}  // namespace trireme::watch
