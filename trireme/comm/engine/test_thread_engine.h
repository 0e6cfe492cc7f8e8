// An engine whose ranks are threads that read each other's memory between two barriers: slow, short and plainly right.
// It stands in for any engine, and takes part in the tests as the one to compare with. Included by tests only.
//
//   auto group = std::make_shared<ThreadGroup>(2);
//   std::unique_ptr<Engine> rank0 = group->engine(0);      // rank 1's in another thread
#pragma once

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/engine/engine.h"
#include "trireme/comm/engine/shm/reduce.h"
#include "trireme/core/clock.h"
#include "trireme/core/error.h"

namespace trireme::comm::testing {

/// What a rank shows to the others during one collective.
struct Shown {
  const std::byte* input = nullptr;
  std::vector<size_t> offsets;  // in bytes, where it matters
};

class ThreadGroup : public std::enable_shared_from_this<ThreadGroup> {
 public:
  explicit ThreadGroup(int size, Clock::duration timeout = std::chrono::seconds(50), RankNames names = {})
      : size_(size), timeout_(timeout), names_(std::move(names)), shown_(static_cast<size_t>(size)) {}

  std::unique_ptr<Engine> engine(int rank);
  int size() const { return size_; }
  const RankNames& names() const { return names_; }

  /// Everyone's Shown, valid until leave().
  const std::vector<Shown>& meet(int rank, Shown shown) {
    std::unique_lock lock(mutex_);
    shown_[static_cast<size_t>(rank)] = std::move(shown);
    arrive(lock, rank);
    return shown_;
  }
  void leave(int rank) {
    std::unique_lock lock(mutex_);
    arrive(lock, rank);
  }
  void abort(const Blame& blame) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = blame;
    changed_.notify_all();
  }
  void put(int from, int to, std::string bytes) {
    const std::lock_guard lock(mutex_);
    check();
    mail_[{from, to}].push_back(std::move(bytes));
    changed_.notify_all();
  }
  std::string take(int from, int to) {
    std::unique_lock lock(mutex_);
    auto& box = mail_[{from, to}];
    wait(lock, to, [&] { return !box.empty(); });
    std::string bytes = std::move(box.front());
    box.pop_front();
    return bytes;
  }

 private:
  void check() const {
    if (!failure_.empty()) throw error_of(failure_);
  }
  template <typename Condition>
  void wait(std::unique_lock<std::mutex>& lock, int rank, Condition condition) {
    const bool came = changed_.wait_for(lock, timeout_, [&] { return condition() || !failure_.empty(); });
    if (!came && failure_.empty()) failure_ = {.reason = fmt::format("rank {} waited in vain", called(names_, rank))};
    if (!came) changed_.notify_all();
    if (!condition()) check();
  }
  void arrive(std::unique_lock<std::mutex>& lock, int rank) {
    check();
    const size_t round = round_;
    if (++arrived_ == size_) {
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
    }
    wait(lock, rank, [&] { return round_ != round; });
  }

  const int size_;
  const Clock::duration timeout_;
  const RankNames names_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Shown> shown_;
  int arrived_ = 0;
  size_t round_ = 0;
  Blame failure_;
  std::map<std::pair<int, int>, std::deque<std::string>> mail_;
};

class ThreadEngine : public Engine {
 public:
  ThreadEngine(std::shared_ptr<ThreadGroup> group, int rank)
      : Engine({.me = {rank, group->size()}, .names = group->names()}), group_(std::move(group)), rank_(rank) {}

  const char* name() const override { return "thread"; }

 private:
  void do_all_reduce(const Operation& call, void* data) override {
    const auto result = joined(call, data, 0, call.dims.elements);
    copy(data, result.data(), result.size());
  }
  void do_reduce(const Operation& call, void* data) override {
    const auto result = joined(call, data, 0, call.dims.elements);
    if (rank_ == call.root) copy(data, result.data(), result.size());
  }
  void do_broadcast(const Operation& call, void* data) override {
    const auto& all = group_->meet(rank_, {bytes(data), {}});
    if (rank_ != call.root) copy(data, all[static_cast<size_t>(call.root)].input, size_in_bytes(call));
    group_->leave(rank_);
  }
  void do_all_gather(const Operation& call, const void* input, Counts counts, void* output) override {
    const auto& all = group_->meet(rank_, {bytes(input), {}});
    auto* to = static_cast<std::byte*>(output);
    for (size_t k = 0; k < counts.size() && output != nullptr; to += counts[k++] * size_of(call.dtype))
      copy(to, all[k].input, counts[k] * size_of(call.dtype));
    group_->leave(rank_);
  }
  void do_gather(const Operation& call, const void* input, Counts counts, void* output) override {
    do_all_gather(call, input, counts, rank_ == call.root ? output : nullptr);
  }
  void do_scatter(const Operation& call, const void* input, Counts counts, void* output) override {
    const auto& all = group_->meet(rank_, {bytes(input), {}});
    const auto me = static_cast<size_t>(rank_);
    const size_t start = offsets(counts, call.dtype)[me];
    copy(output, all[static_cast<size_t>(call.root)].input + start, counts[me] * size_of(call.dtype));
    group_->leave(rank_);
  }
  void do_reduce_scatter(const Operation& call, const void* input, Counts counts, void* output) override {
    const auto me = static_cast<size_t>(rank_);
    const auto result = joined(call, input, offsets(counts, call.dtype)[me], counts[me]);
    copy(output, result.data(), result.size());
  }
  void do_all_to_all(const Operation& call, const void* input, Counts sent, void* output, Counts received) override {
    const auto& all = group_->meet(rank_, {bytes(input), offsets(sent, call.dtype)});
    auto* to = static_cast<std::byte*>(output);
    for (size_t k = 0; k < received.size(); to += received[k++] * size_of(call.dtype))
      copy(to, all[k].input + all[k].offsets[static_cast<size_t>(rank_)], received[k] * size_of(call.dtype));
    group_->leave(rank_);
  }
  void do_barrier(const Operation& /*call*/) override { group_->meet(rank_, {}); }
  void do_send(const Operation& call, const void* data) override {
    group_->put(rank_, call.to, std::string(static_cast<const char*>(data), size_in_bytes(call)));
  }
  void do_recv(const Operation& call, void* data) override {
    const std::string message = group_->take(call.root, rank_);
    if (message.size() != size_in_bytes(call))
      throw Disagreement("rank {} sent {} bytes, rank {} expects {}", call.root, message.size(), rank_,
                         size_in_bytes(call));
    copy(data, message.data(), message.size());
  }
  void do_abort(const Blame& blame) override { group_->abort(blame); }

  static const std::byte* bytes(const void* data) { return static_cast<const std::byte*>(data); }
  static void copy(void* to, const void* from, size_t size) {
    if (size != 0 && to != from) std::memmove(to, from, size);
  }
  static std::vector<size_t> offsets(Counts counts, DType dtype) {
    std::vector<size_t> starts{0};
    for (const size_t count : counts) starts.push_back(starts.back() + count * size_of(dtype));
    return starts;
  }
  static size_t size_in_bytes(const Operation& call) { return call.dims.elements * size_of(call.dtype); }
  std::vector<std::byte> joined(const Operation& call, const void* input, size_t offset, size_t elements) {
    const auto& all = group_->meet(rank_, {bytes(input), {}});
    std::vector<const std::byte*> sources;
    for (const Shown& shown : all) sources.push_back(shown.input + offset);
    std::vector<std::byte> result(elements * size_of(call.dtype));
    if (elements != 0) shm::reduce(call.dtype, call.op, sources, elements, result.data());
    group_->leave(rank_);
    return result;
  }

  const std::shared_ptr<ThreadGroup> group_;
  const int rank_;
};

inline std::unique_ptr<Engine> ThreadGroup::engine(int rank) {
  return std::make_unique<ThreadEngine>(shared_from_this(), rank);
}

}  // namespace trireme::comm::testing
