// Collectives between the ranks of one host through shared memory: no socket, no library, no tensor.
//
//   auto group = shm::Group::join(store, {.name = "world", .me = {.rank = 0, .size = 2}}, Deadline::in(30s));
//   group->all_reduce(gradients.data(), gradients.size(), shm::DType::f32, shm::ReduceOp::avg);
//
// Requires: every rank calls the same collectives with the same sizes in the same order.
// Guarantees: all ranks get the same bits, and so does every run with the same inputs and number of ranks. Ranks that
// disagree (kind, type, size, root, operation) all get a UsageError that names two of them. A rank that died is a
// PeerError that names it within about 100 ms, one that does not come a PeerError after `timeout`. After any of these
// the group is of no more use: every further call throws.
// How it works: exchange.h (rounds, memory order, waiting), collectives.cc and movement.cc (algorithms), channel.h
// (messages).
//
// Thread rule: one collective at a time (a second thread gets a UsageError), messages beside it; abort() from any
// thread. Groups are independent of each other. Destroy a group only when none of its operations is under way.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "trireme/comm/engine/shm/channel.h"
#include "trireme/comm/engine/shm/dtype.h"
#include "trireme/comm/engine/shm/exchange.h"
#include "trireme/comm/engine/shm/rendezvous.h"
#include "trireme/core/deadline.h"
#include "trireme/core/rank_info.h"
#include "trireme/store/store.h"

namespace trireme::shm {

class Group {
 public:
  struct Options {
    std::string name;  ///< the same on every rank, and new in the store
    RankInfo me{};
    size_t piece_bytes = size_t{256} << 10;              ///< of each buffer's `in` area; rounded up to 64 a rank
    Clock::duration timeout = std::chrono::minutes(30);  ///< for one operation
    FileKinds files = kAllFileKinds;                     ///< what the memory may be, in order of preference
  };

  /// Meets the other ranks. UsageError: the ranks are not on one host (it says why). PeerError: someone did not come by
  /// the deadline, or could not open the memory. The store must outlive a group whose ranks send to each other.
  static std::unique_ptr<Group> join(Store& store, const Options& options, Deadline deadline);
  /// Ranks that share a mapping already: the threads of one process.
  Group(const std::shared_ptr<Segment>& segment, RankInfo me, Exchange::Options options);

  int rank() const { return exchange_.me().rank; }
  int size() const { return exchange_.me().size; }
  /// How many operations were begun.
  uint64_t sequence() const { return exchange_.sequence(); }

  /// In place.
  void all_reduce(void* data, size_t elements, DType dtype, ReduceOp op);
  /// In place; `root`'s data everywhere.
  void broadcast(void* data, size_t elements, DType dtype, int root);
  /// `output` holds size() * elements, in rank order. `input` may be this rank's place in it.
  void all_gather(const void* input, size_t elements, DType dtype, void* output);
  /// Rank k gives elements[k]; the list is the same on every rank.
  void all_gather_uneven(const void* input, std::span<const size_t> elements, DType dtype, void* output);
  /// `input` holds size() parts of `elements`; part k, joined over all ranks, becomes rank k's `output`, which may be
  /// this rank's place in `input`.
  void reduce_scatter(const void* input, size_t elements, DType dtype, ReduceOp op, void* output);
  /// The same with parts of any size: part k has elements[k]. The list is the same on every rank.
  void reduce_scatter_uneven(const void* input, std::span<const size_t> elements, DType dtype, ReduceOp op,
                             void* output);
  /// In place on `root`; the others' data stays as it is.
  void reduce(void* data, size_t elements, DType dtype, ReduceOp op, int root);
  /// As all_gather_uneven, on `root` only; elsewhere `output` may be null.
  void gather(const void* input, std::span<const size_t> elements, DType dtype, void* output, int root);
  /// Part k of root's `input`, elements[k] long, becomes rank k's `output`; elsewhere `input` may be null. The list is
  /// the same on every rank. On `root` the output may be its place in the input.
  void scatter(const void* input, std::span<const size_t> elements, DType dtype, void* output, int root);
  /// Part k of `input` goes to rank k, part k of `output` comes from rank k. What j sends to k and k expects from j
  /// must be the same number: otherwise all ranks get a UsageError with both.
  void all_to_all(const void* input, std::span<const size_t> sent, DType dtype, void* output,
                  std::span<const size_t> received);
  void barrier();

  /// Messages (channel.h), of groups that have joined. They may run beside a collective and beside each other, one at a
  /// time for each peer and direction. send() waits for the receiver.
  void send(const void* data, size_t elements, DType dtype, int to);
  void recv(void* data, size_t elements, DType dtype, int from);

  /// Ends what is under way, on every rank, by a PeerError with this reason.
  void abort(std::string_view reason) { exchange_.abort(reason); }

 private:
  using Counts = std::span<const size_t>;

  void check_root(const char* what, int root) const;
  void check_counts(const char* what, Counts counts) const;
  Channels& channels();

  Exchange exchange_;
  std::unique_ptr<Channels> channels_;
};

/// The shape of a group's memory, for segments made by hand.
Shape group_shape(int ranks, size_t piece_bytes);

}  // namespace trireme::shm
