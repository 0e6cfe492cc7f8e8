// The engine of ranks on one host: collectives through shared memory, with no socket, no library, no tensor.
//
//   auto group = shm::Group::join(store, {.name = "world", .member = {.me = {0, 2}}}, Deadline::in(30s));
//   group->all_reduce(gradients.data(), gradients.size(), DType::f32, ReduceOp::avg);
//
// Guarantees, beyond those of Engine: every run with the same inputs and number of ranks gives the same bits. Ranks
// that disagree (kind, type, shape, root, operation) all get a Disagreement that names two of them. A rank that died is
// a PeerError that names it within about 100 ms, one that does not call a PeerError after `timeout`. Where a function
// of Engine has an input and an output, the output of reduce_scatter may be this rank's place in its input, and so may
// that of scatter on the root.
//
// How it works: exchange.h (rounds, memory order, waiting), collectives.cc and movement.cc (algorithms), channel.h
// (messages).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "trireme/comm/engine/engine.h"
#include "trireme/comm/engine/shm/channel.h"
#include "trireme/comm/engine/shm/exchange.h"
#include "trireme/comm/engine/shm/rendezvous.h"
#include "trireme/core/clock.h"
#include "trireme/core/deadline.h"
#include "trireme/store/store.h"

namespace trireme::comm::shm {

class Group final : public Engine {
 public:
  struct Options {
    std::string name;  ///< of its keys in the store: the same on every rank, and new
    Member member{};
    size_t piece_bytes = size_t{256} << 10;              ///< of each buffer's `in` area; rounded up to 64 a rank
    Clock::duration timeout = std::chrono::minutes(30);  ///< for one operation
    FileKinds files = kAllFileKinds;                     ///< what the memory may be, in order of preference
  };

  /// Meets the other ranks. UsageError: the ranks are not on one host (it says why). PeerError: a rank did not come by
  /// the deadline, or could not open the memory. Two ranks that send to each other meet in the store when they first
  /// do.
  static std::unique_ptr<Group> join(std::shared_ptr<Store> store, const Options& options, Deadline deadline);
  /// Ranks that share a mapping already: the threads of one process. They cannot send messages.
  Group(const std::shared_ptr<Segment>& segment, Member member, Exchange::Options options);

  const char* name() const override { return "shm"; }

 private:
  void do_all_reduce(const Operation& call, void* data) override;
  void do_reduce(const Operation& call, void* data) override;
  void do_broadcast(const Operation& call, void* data) override;
  void do_all_gather(const Operation& call, const void* input, Counts counts, void* output) override;
  void do_gather(const Operation& call, const void* input, Counts counts, void* output) override;
  void do_scatter(const Operation& call, const void* input, Counts counts, void* output) override;
  void do_reduce_scatter(const Operation& call, const void* input, Counts counts, void* output) override;
  void do_all_to_all(const Operation& call, const void* input, Counts sent, void* output, Counts received) override;
  void do_barrier(const Operation& call) override;
  void do_send(const Operation& call, const void* data) override;
  void do_recv(const Operation& call, void* data) override;
  void do_abort(const Blame& blame) override { exchange_.abort(blame); }
  bool compares_itself() const override { return true; }
  Channels& channels();

  Exchange exchange_;
  std::unique_ptr<Channels> channels_;
};

/// The shape of a group's memory, for segments made by hand.
Shape group_shape(int ranks, size_t piece_bytes);

}  // namespace trireme::comm::shm
