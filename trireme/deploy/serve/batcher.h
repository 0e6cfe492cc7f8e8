// Gathers what several threads want computed into batches, and gives each its part back.
//
//   Batcher<Tensor, Scores> batcher({.max_batch = 8}, [&](std::vector<Tensor> batch) { return engine.run(batch); });
//   std::vector<Scores> scores = batcher.run({tensor}, Deadline::in(30s));   // on any thread
//
// One thread runs the batches, one after the other. When it is idle, what comes is run at once: a lone caller never
// waits for company. When it was busy and found callers waiting, more are likely on their way; it then waits for a full
// batch until the oldest of them has waited `max_wait`.
//
// Guarantees: an accepted input is run, unless its caller's deadline passed before its batch began; a batch has at most
// max_batch inputs, in the order they came; the queue never holds more than max_queue inputs. The calls are
// thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/core/clock.h"
#include "trireme/core/deadline.h"
#include "trireme/core/quiet_thread.h"
#include "trireme/core/thread_annotations.h"

namespace trireme::serve {

struct BatcherOptions {
  size_t max_batch = 8;
  Clock::duration max_wait = Millis(2);
  size_t max_queue = 256;  ///< inputs that wait; those of one call are taken all or none
};

/// Why a call was not answered. Expected under load, so no trireme::Error: the caller turns it into a status.
enum class Unanswered { queue_full, timed_out, stopped, client_left };
class UnansweredError : public std::runtime_error {
 public:
  explicit UnansweredError(Unanswered reason) : std::runtime_error("not answered by the batcher"), reason_(reason) {}
  Unanswered reason() const { return reason_; }

 private:
  Unanswered reason_;
};

template <typename Input, typename Output>
class Batcher {
 public:
  /// Gets at least one input and returns as many outputs; what it throws is thrown at the callers of that batch.
  using Run = std::function<std::vector<Output>(std::vector<Input>)>;

  /// Requires: max_batch and max_queue at least 1.
  Batcher(BatcherOptions options, Run run)
      : options_(options), run_(std::move(run)), thread_(start_quiet_thread("the batcher", [this] { work(); })) {}
  ~Batcher() { stop(); }
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  /// The outputs in the order of the inputs. Throws UnansweredError, or what Run threw.
  std::vector<Output> run(std::vector<Input> inputs, Deadline deadline);
  /// Inputs that wait now.
  size_t waiting() const {
    std::lock_guard lock(mutex_);
    return queue_.size();
  }
  /// No batch runs, also none that its callers have given up, and nothing waits.
  bool is_idle() const {
    std::lock_guard lock(mutex_);
    return queue_.empty() && !running_;
  }
  /// Refuses what comes from now on, runs what waits, and returns when that is done.
  void stop();

 private:
  struct Call {
    std::vector<Output> outputs;  // guarded by the batcher's mutex, as all fields
    size_t left = 0;
    std::exception_ptr error;
    std::condition_variable done;
  };
  struct Entry {
    std::shared_ptr<Call> call;
    size_t index = 0;
    Input input;
    Clock::time_point since;
  };

  void enqueue(const std::shared_ptr<Call>& call, std::vector<Input> inputs) TRIREME_REQUIRES(mutex_);
  void work();
  void wait_for_company(std::unique_lock<Mutex>& lock) TRIREME_REQUIRES(mutex_);
  std::vector<Entry> take_batch() TRIREME_REQUIRES(mutex_);
  // Unlocks a lock that the caller made: beyond the analysis.
  void run_batch(std::vector<Entry> batch, std::unique_lock<Mutex>& lock) TRIREME_NO_THREAD_SAFETY_ANALYSIS;

  const BatcherOptions options_;
  const Run run_;
  mutable Mutex mutex_;
  std::condition_variable changed_;  // only the batcher's thread waits for it
  std::deque<Entry> queue_ TRIREME_GUARDED_BY(mutex_);
  bool running_ TRIREME_GUARDED_BY(mutex_) = false;
  bool stop_ TRIREME_GUARDED_BY(mutex_) = false;
  std::once_flag joined_;
  std::thread thread_;  // last: it uses the others
};

template <typename Input, typename Output>
std::vector<Output> Batcher<Input, Output>::run(std::vector<Input> inputs, Deadline deadline) {
  if (inputs.empty()) return {};
  const auto call = std::make_shared<Call>();
  std::unique_lock lock(mutex_);
  enqueue(call, std::move(inputs));
  const auto answered = [&] { return call->left == 0; };
  if (deadline.is_never()) {
    call->done.wait(lock, answered);
  } else if (!call->done.wait_until(lock, deadline.time(), answered)) {
    std::erase_if(queue_, [&](const Entry& entry) { return entry.call == call; });
    throw UnansweredError(Unanswered::timed_out);
  }
  if (call->error) std::rethrow_exception(call->error);
  return std::move(call->outputs);
}

template <typename Input, typename Output>
void Batcher<Input, Output>::enqueue(const std::shared_ptr<Call>& call, std::vector<Input> inputs) {
  if (stop_) throw UnansweredError(Unanswered::stopped);
  if (inputs.size() > options_.max_queue - queue_.size()) throw UnansweredError(Unanswered::queue_full);
  call->left = inputs.size();
  call->outputs.resize(inputs.size());
  const auto now = Clock::now();
  for (size_t i = 0; i < inputs.size(); ++i) queue_.push_back({call, i, std::move(inputs[i]), now});
  changed_.notify_one();
}

template <typename Input, typename Output>
void Batcher<Input, Output>::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  std::call_once(joined_, [this] { thread_.join(); });
}

template <typename Input, typename Output>
void Batcher<Input, Output>::work() {
  std::unique_lock lock(mutex_);
  bool idle = true;
  while (true) {
    // No deadline: this is the thread's rest, and stop() ends it.
    changed_.wait(lock, [this]() TRIREME_REQUIRES(mutex_) { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    if (!idle) wait_for_company(lock);
    if (!queue_.empty()) run_batch(take_batch(), lock);  // empty: the callers gave up
    idle = queue_.empty();
  }
}

template <typename Input, typename Output>
void Batcher<Input, Output>::wait_for_company(std::unique_lock<Mutex>& lock) {
  const auto until = queue_.front().since + options_.max_wait;
  changed_.wait_until(lock, until, [this]() TRIREME_REQUIRES(mutex_) {
    return stop_ || queue_.empty() || queue_.size() >= options_.max_batch;
  });
}

template <typename Input, typename Output>
auto Batcher<Input, Output>::take_batch() -> std::vector<Entry> {
  std::vector<Entry> batch;
  while (!queue_.empty() && batch.size() < options_.max_batch) {
    batch.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  return batch;
}

/// Without the lock while it computes.
template <typename Input, typename Output>
void Batcher<Input, Output>::run_batch(std::vector<Entry> batch, std::unique_lock<Mutex>& lock) {
  running_ = true;
  lock.unlock();
  std::vector<Output> outputs;
  std::exception_ptr error;
  try {
    std::vector<Input> inputs;
    inputs.reserve(batch.size());
    for (Entry& entry : batch) inputs.push_back(std::move(entry.input));
    outputs = run_(std::move(inputs));
    if (outputs.size() != batch.size()) throw std::logic_error("the engine answered another number of inputs");
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  running_ = false;
  for (size_t i = 0; i < batch.size(); ++i) {
    Call& call = *batch[i].call;
    if (error)
      call.error = error;
    else
      call.outputs[batch[i].index] = std::move(outputs[i]);
    if (--call.left == 0) call.done.notify_one();
  }
}

}  // namespace trireme::serve
