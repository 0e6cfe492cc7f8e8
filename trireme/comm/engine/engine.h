// What moves the bytes of a collective: one engine per group and way of transport. Torch-free, so that every algorithm
// runs under the sanitizers; trireme/comm puts tensors, queues and c10d on top.
//
//   std::unique_ptr<Engine> engine = shm::Group::join(store, {.name = "world", .member = {.me = {0, 2}}}, deadline);
//   engine->all_reduce(gradients.data(), gradients.size(), DType::f32, ReduceOp::avg);
//
// The public functions are the contract, the same for every engine: they check the arguments, count the operation,
// refuse to run after a failure, compare the ranks' calls where asked to, and say in every error what failed and where.
// The engines (local, shm, mpi, gloo, hierarchical) implement the private do_ functions and move the data.
//
// Every call blocks until this rank's part is done. Counts are in elements. Buffers are dense and must not overlap
// unless a function says so. A count may be 0, a pointer to nothing may be null.
//
// Errors: UsageError when an argument is impossible, which harms nothing; Disagreement (a UsageError) when the ranks
// are seen to disagree; PeerError when a rank is dead, late or cut off, naming it as far as the engine can know. After
// a Disagreement or a PeerError the engine cannot be used: every further call throws a PeerError.
//
// Thread rule: one collective at a time (a second thread gets a UsageError). send() and recv() may run beside a
// collective and beside each other, one at a time for each peer and direction. abort() from any thread. Destroy it only
// when nothing is under way.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/comm/engine/blame.h"
#include "trireme/comm/engine/dtype.h"
#include "trireme/comm/engine/operation.h"
#include "trireme/core/rank_info.h"
#include "trireme/core/thread_annotations.h"
#include "trireme/watch/recorder.h"

namespace trireme::comm {

/// This rank's place in a group, and how to speak of the group.
struct Member {
  RankInfo me{};
  std::string group{};  ///< its name, for PeerError::group()
  RankNames names{};    ///< how its ranks are called in messages
};

class Engine {
 public:
  using Counts = std::span<const size_t>;  ///< one count for each rank

  explicit Engine(Member member) : member_(std::move(member)) {}
  virtual ~Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// As users choose it: "local", "shm", "gloo", "hierarchical", "mpi".
  virtual const char* name() const = 0;
  RankInfo me() const { return member_.me; }
  int rank() const { return member_.me.rank; }
  int size() const { return member_.me.size; }
  /// How many collectives were begun.
  uint64_t sequence() const { return sequence_; }

  /// In place. All ranks get the same bits. `dims` is a number of elements or a shape, the same on every rank.
  void all_reduce(void* data, const Dims& dims, DType dtype, ReduceOp op);
  /// In place on `root`; the others' data stays as it is.
  void reduce(void* data, const Dims& dims, DType dtype, ReduceOp op, int root);
  void broadcast(void* data, const Dims& dims, DType dtype, int root);
  /// Rank k gives counts[k]; `counts` is the same on every rank. `output` holds all parts in rank order; `input` may be
  /// this rank's place in it.
  void all_gather(const void* input, Counts counts, DType dtype, void* output);
  /// As all_gather, on `root` only; elsewhere `output` is not touched and may be null.
  void gather(const void* input, Counts counts, DType dtype, void* output, int root);
  /// Part k of root's `input` becomes rank k's `output`; `input` may be null elsewhere. `counts` is the same
  /// everywhere.
  void scatter(const void* input, Counts counts, DType dtype, void* output, int root);
  /// Part k of the inputs, joined over all ranks, becomes rank k's `output`. `counts` is the same on every rank.
  void reduce_scatter(const void* input, Counts counts, DType dtype, ReduceOp op, void* output);
  /// Part k of `input` goes to rank k; part k of `output` comes from rank k. What j sends to k must be what k expects.
  void all_to_all(const void* input, Counts sent, DType dtype, void* output, Counts received);
  void barrier();

  /// Messages between two ranks arrive in the order sent; size and type must agree on both sides. send() may wait until
  /// the receiver has come.
  void send(const void* data, size_t elements, DType dtype, int to);
  void recv(void* data, size_t elements, DType dtype, int from);

  /// Ends what is under way, on every rank that can be reached, by a PeerError with this reason.
  void abort(std::string_view reason);
  /// The same for the fault of another rank.
  void abort(const Blame& blame);

  /// From now on the ranks compare their calls before each collective, by a small all_gather. Call it on every rank. An
  /// engine that compares anyway, as shm does, is left as it is.
  void compare_calls() { compares_ = !compares_itself(); }

  /// Called on the thread of an operation that fails because of another rank, before its caller gets the PeerError.
  /// `ranks` are those that the operation needs: all others, or the peer of a message.
  using ReportWait = std::function<void(const char* operation, const std::vector<int>& ranks)>;
  void report_waits(ReportWait report) { report_ = std::move(report); }

  /// From now on every operation is recorded for the launcher as one of `group`, with its ranks as `world_ranks`. Not
  /// for the engines that another engine is made of.
  void record_calls(watch::Group group, std::vector<int> world_ranks);
  /// From now on every operation is logged before it runs (GLOG_v=3).
  void log_calls() { logs_ = true; }

 protected:
  const RankNames& names() const { return member_.names; }
  /// The number of a rank in messages.
  int called(int rank) const { return comm::called(member_.names, rank); }
  /// Throws the same Disagreement on every rank when the calls of some differ.
  virtual void compare(const Operation& call);
  /// Of an all_to_all: whether each rank expects what the others send, by one all_gather.
  void compare_parts(const Operation& call, Counts sent, Counts received);

 private:
  // The arguments are checked; `call` holds type, operation, root, size and sequence number. Throw error_of(Blame) or
  // Disagreement: the text of what failed is added here, and then do_abort() is called.
  virtual void do_all_reduce(const Operation& call, void* data) = 0;
  virtual void do_reduce(const Operation& call, void* data) = 0;
  virtual void do_broadcast(const Operation& call, void* data) = 0;
  virtual void do_all_gather(const Operation& call, const void* input, Counts counts, void* output) = 0;
  virtual void do_gather(const Operation& call, const void* input, Counts counts, void* output) = 0;
  virtual void do_scatter(const Operation& call, const void* input, Counts counts, void* output) = 0;
  virtual void do_reduce_scatter(const Operation& call, const void* input, Counts counts, void* output) = 0;
  virtual void do_all_to_all(const Operation& call, const void* input, Counts sent, void* output, Counts received) = 0;
  virtual void do_barrier(const Operation& call) = 0;
  virtual void do_send(const Operation& call, const void* data) = 0;
  virtual void do_recv(const Operation& call, void* data) = 0;
  /// Ends the waits of every rank that can be reached with this blame; the first one stays. From any thread.
  virtual void do_abort(const Blame& blame) = 0;
  /// Whether the do_ functions find out by themselves that ranks disagree.
  virtual bool compares_itself() const { return false; }

  template <typename Body>
  void run(Operation call, Body body);
  template <typename Body>
  void guard(const Operation& call, Body body);
  void check_root(const char* what, int root) const;
  void check_peer(const char* what, int peer) const;
  void check_counts(Kind kind, Counts counts) const;
  void check_alive(const Operation& call);
  void gather_bytes(std::span<const std::byte> mine, void* all);
  bool set_failure(const PeerError& failure);
  void report(const Operation& call) const;
  watch::CallFacts facts_of(const Operation& call) const;
  int world_rank(int rank) const { return comm::called(world_ranks_, rank); }

  const Member member_;
  bool compares_ = false;
  bool logs_ = false;
  ReportWait report_;
  watch::Group recorded_;  // empty: its calls are not recorded
  std::vector<int> world_ranks_;
  const pid_t owner_ = ::getpid();
  std::mutex turn_;  // of collectives
  std::atomic<uint64_t> sequence_ = 0;
  Mutex mutex_;
  std::optional<PeerError> failure_ TRIREME_GUARDED_BY(mutex_);  // the first
};

}  // namespace trireme::comm
