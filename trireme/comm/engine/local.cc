#include "trireme/comm/engine/local.h"

#include <cstring>
#include <mutex>
#include <string>

#include "trireme/core/error.h"

namespace trireme {
namespace {

class LocalEngine : public Engine {
 public:
  const char* name() const override { return "local"; }
  RankInfo me() const override { return {0, 1}; }

  // The sum, product, minimum, maximum and average of one are itself.
  void all_reduce(void* /*data*/, size_t /*elements*/, DType dtype, ReduceOp op) override {
    check_alive();
    check_reducible(dtype, op);
  }
  void reduce(void* data, size_t elements, DType dtype, ReduceOp op, int root) override {
    check_root("reduce", root);
    all_reduce(data, elements, dtype, op);
  }
  void broadcast(void* /*data*/, size_t /*elements*/, DType /*dtype*/, int root) override {
    check_root("broadcast", root);
    check_alive();
  }
  void all_gather(const void* input, Counts counts, DType dtype, void* output) override {
    copy("all_gather", input, counts, dtype, output);
  }
  void gather(const void* input, Counts counts, DType dtype, void* output, int root) override {
    check_root("gather", root);
    copy("gather", input, counts, dtype, output);
  }
  void scatter(const void* input, Counts counts, DType dtype, void* output, int root) override {
    check_root("scatter", root);
    copy("scatter", input, counts, dtype, output);
  }
  void reduce_scatter(const void* input, Counts counts, DType dtype, ReduceOp op, void* output) override {
    check_reducible(dtype, op);
    copy("reduce_scatter", input, counts, dtype, output);
  }
  void all_to_all(const void* input, Counts sent, DType dtype, void* output, Counts received) override {
    if (sent.size() == 1 && received.size() == 1 && sent[0] != received[0])
      throw UsageError("all_to_all: rank 0 sends {} elements to itself but expects {}", sent[0], received[0]);
    check_counts("all_to_all", received);
    copy("all_to_all", input, sent, dtype, output);
  }
  void barrier() override { check_alive(); }
  void send(const void* /*data*/, size_t /*elements*/, DType /*dtype*/, int to) override { throw_no_peer("send", to); }
  void recv(void* /*data*/, size_t /*elements*/, DType /*dtype*/, int from) override { throw_no_peer("recv", from); }

  void abort(std::string_view reason) override {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = reason.empty() ? "no reason given" : reason;
  }

 private:
  void check_alive() {
    const std::lock_guard lock(mutex_);
    if (!reason_.empty()) throw PeerError("rank 0: the group was aborted: {}", reason_);
  }
  static void check_root(const char* what, int root) {
    if (root != 0) throw UsageError("{}: root {}, but the group has only rank 0", what, root);
  }
  static void check_counts(const char* what, Counts counts) {
    if (counts.size() != 1) throw UsageError("{} with {} counts for 1 rank; give one for each", what, counts.size());
  }
  [[noreturn]] static void throw_no_peer(const char* what, int rank) {
    throw UsageError("{}: rank {}, but the group has only rank 0, which cannot exchange messages with itself", what,
                     rank);
  }
  void copy(const char* what, const void* input, Counts counts, DType dtype, void* output) {
    check_alive();
    check_counts(what, counts);
    if (counts[0] != 0 && input != output) std::memmove(output, input, counts[0] * size_of(dtype));
  }

  std::mutex mutex_;
  std::string reason_;  // GUARDED_BY(mutex_); of abort()
};

}  // namespace

std::unique_ptr<Engine> make_local_engine() {
  return std::make_unique<LocalEngine>();
}

}  // namespace trireme
