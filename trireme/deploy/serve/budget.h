// Bytes that several threads share: a thread waits in turn until enough are free.
//
//   Budget budget(512 << 20);
//   const auto share = budget.take(bytes, Deadline::in(30s));
//   if (!share) give_up();                      // else the bytes come back with the end of `share`
//
// In turn, so that small requests cannot overtake a large one for ever. A thread that holds a share must not take
// another: two threads could each wait for the other's. Thread-safe. Must outlive its shares.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "trireme/core/deadline.h"
#include "trireme/core/thread_annotations.h"

namespace trireme::serve {

class Budget {
 public:
  class Share {
   public:
    Share(Share&& other) noexcept : budget_(std::exchange(other.budget_, nullptr)), bytes_(other.bytes_) {}
    Share& operator=(Share&&) = delete;
    ~Share() {
      if (budget_) budget_->give_back(bytes_);
    }
    /// Gives the rest back. Requires: at most what it has.
    void keep(size_t bytes) { budget_->give_back(std::exchange(bytes_, bytes) - bytes); }

   private:
    friend Budget;
    Share(Budget* budget, size_t bytes) : budget_(budget), bytes_(bytes) {}
    Budget* budget_;
    size_t bytes_;
  };

  explicit Budget(size_t bytes) : total_(bytes), free_(bytes) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  /// Nothing when its turn had not come by the deadline. Requires: at most total().
  std::optional<Share> take(size_t bytes, Deadline deadline);
  size_t total() const { return total_; }
  size_t used() const;
  /// Calls of take() that wait now.
  size_t waiting() const;

 private:
  void give_back(size_t bytes);

  const size_t total_;
  mutable Mutex mutex_;
  std::condition_variable changed_;
  size_t free_ TRIREME_GUARDED_BY(mutex_);
  std::deque<uint64_t> line_ TRIREME_GUARDED_BY(mutex_);  // tickets of the waiting calls, the next one in front
  uint64_t next_ticket_ TRIREME_GUARDED_BY(mutex_) = 0;
};

}  // namespace trireme::serve
