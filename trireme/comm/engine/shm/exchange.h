// How the ranks of one group hand data to each other through shared memory.
//
// Words
//   group      R ranks of one host that call the same collectives in the same order. Every group has its own segment,
//              so groups cannot disturb each other, whichever of them work at the same time.
//   segment    the shared memory of one group (layout.h): a header, a control block per rank, two buffers per rank.
//   buffer     where a rank puts what the others shall read: an `in` area for one piece, an `out` area for one slice.
//   piece      as much of a tensor as an `in` area holds. Longer tensors go piece by piece.
//   slice      the share of a piece that one rank reduces for all (layout.h, slice_of).
//   part       what is meant for one rank, where each gets something else: the `in` area is then R areas, one for each.
//   operation  one collective call: kind, type, size, and its sequence number, which counts the operations of a group.
//              A message between two ranks is one too, in a group of two of its own (channel.h).
//   round      the only step there is. In round n a rank writes its buffer n mod 2, publishes n, and waits until all
//              the others have published n; then it may read all buffers n mod 2. Rounds are counted through the whole
//              life of a group, not per operation; an operation is one round or more.
//   publish    to store n in the `published` word of the own control block, and wake the ranks that sleep on it.
//   arrival    the moment a rank sees another's publication.
//
// Why it is correct
//   Reading what was written. A rank writes its buffer, then stores `published`; a reader loads that word and then
//   reads the buffer. Store and load are sequentially consistent, hence release and acquire: the writes happen before
//   the reads. Nothing else in a buffer needs to be atomic, and nothing depends on the strong order of x86; stores past
//   the caches, outside of any order, are fenced before the publication (stream.h).
//
//   Not overwriting what is still read. Buffer n mod 2 is written again in round n+2. A rank begins round n+2 when all
//   have published n+1, and every rank publishes n+1 only after its reads of round n. So two buffers and one wait per
//   round suffice, and no rank has to say that it has finished reading. It follows that every rank publishes and awaits
//   every round, even where it has no data (the receivers of a broadcast or scatter). In round n+1, before publishing,
//   a rank may still read the buffers of round n: the pipelined reductions do (collectives.cc).
//
//   Wrapping. Rounds are 32 bits, as a futex is; they are compared by their difference, which never exceeds 1.
//
//   No lost wake-up. A sleeper adds itself to `sleepers` and then looks at `published`, the publisher stores
//   `published` and then looks at `sleepers`. Both pairs are sequentially consistent, so at least one sees the other
//   (Dekker); the kernel compares the word again before it lets the sleeper sleep.
//
//   Several operations at once. The operations of one group run one after the other in the order of the calls (Engine
//   refuses a second thread); a caller that wants them asynchronous calls from one thread that works off a queue.
//
// Disagreement
//   In the first round of an operation each rank puts its operation beside its buffer and compares all of them on
//   arrival. Since every rank awaits every other, all ranks find the same disagreement in the same round. What an
//   all_to_all sends may differ from rank to rank: there the numbers are the data of the first round (movement.cc).
//
// Waiting, death, delay
//   First a bounded spin that yields now and then, none when the ranks outnumber the processors; then sleep in slices
//   of 50 ms. After each slice the waiter checks whether the missing ranks still live (process number and start time,
//   so that a reused number does not deceive), have left, or whether a rank has aborted the group. So a killed rank is
//   reported after about 50 ms, and one that is stopped or slow after the timeout. The rank that reports it aborts the
//   group with that reason: the others stop at once and repeat it (a channel's ends look for it after each slice). A
//   rank that dies after its last publication has done its part.
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/engine/blame.h"
#include "trireme/comm/engine/operation.h"
#include "trireme/comm/engine/shm/arena.h"
#include "trireme/comm/engine/shm/segment.h"
#include "trireme/core/clock.h"
#include "trireme/core/rank_info.h"

namespace trireme::comm::shm {

/// The rounds of one rank in one group. After an error it must not be used again: Engine sees to that.
/// Thread rule: one thread at a time, except abort(). Must not be destroyed while an operation is under way.
class Exchange {
 public:
  struct Options {
    Clock::duration timeout = std::chrono::minutes(30);  ///< for one operation
    int spins = 0;                                       ///< looks at a word before sleeping on it
    RankNames names{};                                   ///< how ranks are called in messages
    std::shared_ptr<const Segment> above{};              ///< of a group whose end is this one's end too
    Arenas arenas{};                                     ///< where the ranks' tensors may lie
  };

  Exchange(std::shared_ptr<Segment> segment, RankInfo me, Options options);
  /// Tells the others that this rank has left.
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  RankInfo me() const { return me_; }
  const Shape& shape() const { return segment_->shape(); }
  const Arenas& arenas() const { return options_.arenas; }

  /// Starts the next operation.
  void begin(const Operation& operation);
  /// Own areas of the coming round: write them, then sync().
  std::byte* my_in() const { return segment_->in(me_.rank, round_ + 1); }
  std::byte* my_out() const { return segment_->out(me_.rank, round_ + 1); }
  /// Publishes the coming round and awaits all. Disagreement: of the ranks' operations. PeerError: one is dead, late or
  /// gone.
  void sync();
  /// Areas of the last round, readable from its sync() until the next one.
  const std::byte* in_of(int rank) const { return segment_->in(rank, round_); }
  const std::byte* out_of(int rank) const { return segment_->out(rank, round_); }

  const Operation& operation() const { return operation_; }
  const RankNames& names() const { return options_.names; }

  /// Ends the operation under way on every rank, and all later ones, by a PeerError with this blame; the first one
  /// stays. From any thread.
  void abort(const Blame& blame);

 private:
  int called(int rank) const { return comm::called(options_.names, rank); }
  bool arrived(int rank) const;
  void publish();
  void await(int rank);
  void sleep_until_arrival(int rank);
  const SegmentHeader* aborted() const;
  void stop_if_aborted() const;
  void stop_if_anyone_is_gone() const;
  void stop_if_late(int missing) const;
  void compare_operations();

  const std::shared_ptr<Segment> segment_;
  const RankInfo me_;
  const Options options_;
  uint32_t round_;  // the last one that this rank has published
  bool first_round_ = false;
  Operation operation_;  // under way, or the last one
  Clock::time_point begun_;
  std::vector<Operation> operations_;  // room for compare_operations()
};

/// Why a group that is no longer `running` was aborted.
Blame abort_blame(const SegmentHeader& header);

/// How often to look at a word before sleeping: nothing when ranks have to share processors. Pure.
int spin_budget(int ranks, size_t processors);

}  // namespace trireme::comm::shm
