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
#include "trireme/core/deadline.h"
#include "trireme/core/error.h"

namespace trireme::testing {

/// What a rank shows to the others during one collective.
struct Shown {
  const std::byte* input = nullptr;
  std::vector<size_t> offsets;  // in bytes, where it matters
};

class ThreadGroup : public std::enable_shared_from_this<ThreadGroup> {
 public:
  explicit ThreadGroup(int size, Clock::duration timeout = std::chrono::seconds(50))
      : size_(size), timeout_(timeout), shown_(static_cast<size_t>(size)) {}

  std::unique_ptr<Engine> engine(int rank);
  int size() const { return size_; }

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
  void abort(int rank, std::string_view reason) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = "rank " + std::to_string(rank) + " aborted the group: " + std::string(reason);
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
    if (!failure_.empty()) throw PeerError("{}", failure_);
  }
  template <typename Condition>
  void wait(std::unique_lock<std::mutex>& lock, int rank, Condition condition) {
    const bool came = changed_.wait_for(lock, timeout_, [&] { return condition() || !failure_.empty(); });
    if (!came && failure_.empty()) failure_ = "rank " + std::to_string(rank) + " waited in vain";
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
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Shown> shown_;
  int arrived_ = 0;
  size_t round_ = 0;
  std::string failure_;
  std::map<std::pair<int, int>, std::deque<std::string>> mail_;
};

class ThreadEngine : public Engine {
 public:
  ThreadEngine(std::shared_ptr<ThreadGroup> group, int rank) : group_(std::move(group)), rank_(rank) {}

  const char* name() const override { return "thread"; }
  RankInfo me() const override { return {rank_, group_->size()}; }

  void all_reduce(void* data, size_t elements, DType dtype, ReduceOp op) override {
    const auto result = joined(data, 0, elements, dtype, op);
    copy(data, result.data(), result.size());
  }
  void reduce(void* data, size_t elements, DType dtype, ReduceOp op, int root) override {
    const auto result = joined(data, 0, elements, dtype, op);
    if (rank_ == root) copy(data, result.data(), result.size());
  }
  void broadcast(void* data, size_t elements, DType dtype, int root) override {
    const auto& all = group_->meet(rank_, {bytes(data), {}});
    if (rank_ != root) copy(data, all[static_cast<size_t>(root)].input, elements * size_of(dtype));
    group_->leave(rank_);
  }
  void all_gather(const void* input, Counts counts, DType dtype, void* output) override {
    const auto& all = group_->meet(rank_, {bytes(input), {}});
    auto* to = static_cast<std::byte*>(output);
    for (size_t k = 0; k < counts.size() && output != nullptr; to += counts[k++] * size_of(dtype))
      copy(to, all[k].input, counts[k] * size_of(dtype));
    group_->leave(rank_);
  }
  void gather(const void* input, Counts counts, DType dtype, void* output, int root) override {
    all_gather(input, counts, dtype, rank_ == root ? output : nullptr);
  }
  void scatter(const void* input, Counts counts, DType dtype, void* output, int root) override {
    const auto& all = group_->meet(rank_, {bytes(input), {}});
    const size_t count = counts[static_cast<size_t>(rank_)] * size_of(dtype);
    copy(output, all[static_cast<size_t>(root)].input + offsets(counts, dtype)[static_cast<size_t>(rank_)], count);
    group_->leave(rank_);
  }
  void reduce_scatter(const void* input, Counts counts, DType dtype, ReduceOp op, void* output) override {
    const auto starts = offsets(counts, dtype);
    const auto me = static_cast<size_t>(rank_);
    const auto result = joined(input, starts[me], counts[me], dtype, op);
    copy(output, result.data(), result.size());
  }
  void all_to_all(const void* input, Counts sent, DType dtype, void* output, Counts received) override {
    const auto& all = group_->meet(rank_, {bytes(input), offsets(sent, dtype)});
    auto* to = static_cast<std::byte*>(output);
    for (size_t k = 0; k < received.size(); to += received[k++] * size_of(dtype))
      copy(to, all[k].input + all[k].offsets[static_cast<size_t>(rank_)], received[k] * size_of(dtype));
    group_->leave(rank_);
  }
  void barrier() override { group_->meet(rank_, {}); }
  void send(const void* data, size_t elements, DType dtype, int to) override {
    group_->put(rank_, to, std::string(static_cast<const char*>(data), elements * size_of(dtype)));
  }
  void recv(void* data, size_t elements, DType dtype, int from) override {
    const std::string message = group_->take(from, rank_);
    if (message.size() != elements * size_of(dtype))
      throw UsageError("rank {} sent {} bytes, rank {} expects {}", from, message.size(), rank_,
                       elements * size_of(dtype));
    copy(data, message.data(), message.size());
  }
  void abort(std::string_view reason) override { group_->abort(rank_, reason); }

 private:
  static const std::byte* bytes(const void* data) { return static_cast<const std::byte*>(data); }
  static void copy(void* to, const void* from, size_t size) {
    if (size != 0 && to != from) std::memmove(to, from, size);
  }
  static std::vector<size_t> offsets(Counts counts, DType dtype) {
    std::vector<size_t> starts{0};
    for (const size_t count : counts) starts.push_back(starts.back() + count * size_of(dtype));
    return starts;
  }
  std::vector<std::byte> joined(const void* input, size_t offset, size_t elements, DType dtype, ReduceOp op) {
    const auto& all = group_->meet(rank_, {bytes(input), {}});
    std::vector<const std::byte*> sources;
    for (const Shown& shown : all) sources.push_back(shown.input + offset);
    std::vector<std::byte> result(elements * size_of(dtype));
    if (elements != 0) shm::reduce(dtype, op, sources, elements, result.data());
    group_->leave(rank_);
    return result;
  }

  const std::shared_ptr<ThreadGroup> group_;
  const int rank_;
};

inline std::unique_ptr<Engine> ThreadGroup::engine(int rank) {
  return std::make_unique<ThreadEngine>(shared_from_this(), rank);
}

}  // namespace trireme::testing
