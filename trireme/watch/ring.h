// What one rank is doing, in memory that it shares with its launcher: which operations of which groups have begun and
// ended, the current step and phase, and the events of its last seconds. The rank writes; the launcher reads even when
// the rank is stuck or dead.
//
//   UniqueFd file = make_ring_file(3);                       // the launcher, before the rank starts
//   const auto ring = Ring::map(file.get(), Access::read);   // nothing where the file is not a ring
//   for (const CallRecord& call : ring->calls()) …
//
// Words. A *call* is one operation of a group on this rank: a collective, a message, or the meeting that makes the
// group. An *event* is one thing that has ended, or was reported (event.h). Calls have slots that are used in turn; the
// slot of a call that has not ended is passed over. A slot is written under a sequence lock: its version is odd while
// it is written, and a reader that sees a change tries again. Events have a second table, in which the newest replaces
// the oldest: a reader that polls often enough misses nothing.
//
// The reader does not trust the writer: the size of the file is sealed, every read is bounded, and text is terminated.
//
// Thread rule: all from any thread, except start_group() and end_group(), which the caller must serialise.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/core/fd.h"
#include "trireme/watch/event.h"
#include "trireme/watch/phase.h"
#include "trireme/watch/report.h"

namespace trireme::watch {

/// One call. Plain bytes: it lies in shared memory.
struct CallRecord {
  static constexpr size_t kSizes = 4;
  uint64_t group = 0;     ///< the group's id, the same on every rank
  uint64_t number = 0;    ///< among the group's collectives from 1; 0: the meeting that makes the group, or a message
  uint64_t elements = 0;  ///< of the argument
  uint64_t digest = 0;    ///< of its shape
  uint64_t bytes = 0;     ///< of the argument
  uint64_t sizes[kSizes] = {};
  uint32_t size_count = 0;  ///< how many sizes the shape has; the first kSizes are kept
  int32_t root = -1;        ///< as a rank of the world; -1: none
  int32_t peer = -1;        ///< of a message, as a rank of the world; -1: a collective
  uint32_t blocking = 0;    ///< 1: called on the main thread, which can do nothing else until the end
  int64_t enqueued = 0;     ///< now_ns() when the program asked for it
  int64_t started = 0;
  int64_t ended = 0;  ///< 0: not ended
  char operation[24] = {};
  char dtype[16] = {};
  char reduce[8] = {};

  bool open() const { return started != 0 && ended == 0; }
};

/// One group of which the rank is a member.
struct GroupRecord {
  static constexpr size_t kMaxRank = 1024;  ///< larger ones do not fit; such a group has no members here
  uint64_t id = 0;                          ///< 0: the slot is free
  uint32_t size = 0;
  uint32_t world = 0;     ///< 1: all ranks of the job
  uint32_t released = 0;  ///< 1: the rank has dropped the group; other ranks may still be in its last call
  uint32_t again = 0;     ///< how many groups of the same ranks were made before
  uint64_t members[kMaxRank / 64] = {};
};

/// A group and how far the rank has come in it.
struct GroupProgress {
  GroupRecord group;
  uint64_t begun = 0;  ///< calls that have begun, the meeting included: a collective with number n begins as n + 1
};

/// What a reader of events has not seen yet.
struct NewEvents {
  std::vector<EventRecord> events;
  uint64_t next = 0;  ///< where to read on
  uint64_t lost = 0;  ///< they were replaced before they were read
};

enum class Access { read, write };

/// Nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share.
int64_t now_ns();

/// A file for one rank, of fixed size and empty but for the rank and the pid of this process. Its name in /proc/PID/fd
/// is /memfd:kRingFile.
inline constexpr const char* kRingFile = "trireme-watch";
UniqueFd make_ring_file(int rank);

class Ring {
 public:
  static constexpr size_t kCalls = 128;
  static constexpr size_t kGroups = 64;
  static constexpr size_t kEvents = 2048;
  struct Layout;

  /// Nothing when `fd` is not a ring of this version. With Access::write, also when another process that is alive
  /// writes into it.
  static std::unique_ptr<Ring> map(int fd, Access access);
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // --- the rank's side
  /// A place for the group, or -1 when all are in use: then its calls are not recorded. Places of released groups are
  /// used again when no other is left.
  int start_group(const GroupRecord& group);
  void end_group(int place);
  /// A place for the call, or -1. `group_place` is from start_group().
  int start_call(const CallRecord& call, int group_place);
  void end_call(int place, int64_t when);
  void append(EventRecord event);
  void set_phase(Phase phase, int64_t when);
  void set_step(int64_t step, int64_t when);
  void set_goal(const Goal& goal);
  void add_samples(int64_t samples);
  int launcher() const;  ///< its pid

  // --- the launcher's side
  int rank() const;
  int owner() const;     ///< pid of the process that writes; 0: none yet
  int64_t step() const;  ///< -1: not known
  Goal goal() const;
  Phase phase() const;
  int64_t phase_since() const;
  int64_t last_event() const;  ///< when a step or a phase began, or the newest event ended; 0: there is none
  std::vector<GroupProgress> groups() const;
  std::vector<CallRecord> calls() const;
  int64_t samples() const;  ///< that the rank has counted
  /// The events from number `next` on, 0 at first.
  NewEvents events_since(uint64_t next) const;

 private:
  explicit Ring(Layout* layout) : layout_(layout) {}
  Layout* layout_;
  size_t next_group_ = 0;  // where start_group() looks first
};

/// The same number for the same name, in every process.
uint64_t group_id(std::string_view name);

}  // namespace trireme::watch
