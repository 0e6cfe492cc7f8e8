// What moves the bytes of a collective: one engine per group and way of transport. Torch-free, so that every algorithm
// runs under the sanitizers; trireme/comm puts tensors, queues and c10d on top.
//
//   std::unique_ptr<Engine> engine = make_shm_engine(store, {.name = "world", .me = {0, 2}}, Deadline::in(30s));
//   engine->all_reduce(gradients.data(), gradients.size(), DType::f32, ReduceOp::avg);
//
// Every call blocks until this rank's part is done. Counts are in elements. Buffers are dense and must not overlap
// unless a function says so. A count may be 0, a pointer to nothing may be null.
//
// Errors, of every engine: UsageError when the ranks are seen to disagree or an argument is impossible, PeerError when
// a rank is dead, late or cut off, naming it as far as the engine can know. After either the engine is of no more use;
// every further call throws.
//
// Thread rule: one collective at a time. send() and recv() may run beside a collective and beside each other, one at a
// time for each peer and direction. abort() from any thread. Destroy it only when nothing is under way.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "trireme/comm/engine/shm/dtype.h"
#include "trireme/core/rank_info.h"

namespace trireme {

using shm::DType;
using shm::ReduceOp;

class Engine {
 public:
  using Counts = std::span<const size_t>;  ///< one count for each rank

  virtual ~Engine() = default;

  /// As users choose it: "local", "shm", "gloo", "hierarchical", "mpi".
  virtual const char* name() const = 0;
  virtual RankInfo me() const = 0;

  /// In place. All ranks get the same bits.
  virtual void all_reduce(void* data, size_t elements, DType dtype, ReduceOp op) = 0;
  /// In place on `root`; the others' data stays as it is.
  virtual void reduce(void* data, size_t elements, DType dtype, ReduceOp op, int root) = 0;
  virtual void broadcast(void* data, size_t elements, DType dtype, int root) = 0;
  /// Rank k gives counts[k]; `counts` is the same on every rank. `output` holds all parts in rank order; `input` may be
  /// this rank's place in it.
  virtual void all_gather(const void* input, Counts counts, DType dtype, void* output) = 0;
  /// As all_gather, on `root` only; elsewhere `output` is not touched and may be null.
  virtual void gather(const void* input, Counts counts, DType dtype, void* output, int root) = 0;
  /// Part k of root's `input` becomes rank k's `output`; `input` may be null elsewhere. `counts` is the same
  /// everywhere.
  virtual void scatter(const void* input, Counts counts, DType dtype, void* output, int root) = 0;
  /// Part k of the inputs, joined over all ranks, becomes rank k's `output`. `counts` is the same on every rank.
  virtual void reduce_scatter(const void* input, Counts counts, DType dtype, ReduceOp op, void* output) = 0;
  /// Part k of `input` goes to rank k; part k of `output` comes from rank k. What j sends to k must be what k expects.
  virtual void all_to_all(const void* input, Counts sent, DType dtype, void* output, Counts received) = 0;
  virtual void barrier() = 0;

  /// Messages between two ranks arrive in the order sent; size and type must agree on both sides. send() may wait until
  /// the receiver has come.
  virtual void send(const void* data, size_t elements, DType dtype, int to) = 0;
  virtual void recv(void* data, size_t elements, DType dtype, int from) = 0;

  /// Ends what is under way, on every rank that can be reached, by a PeerError with this reason.
  virtual void abort(std::string_view reason) = 0;
};

}  // namespace trireme
