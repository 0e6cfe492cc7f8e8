#include "trireme/comm/operation_queue.h"

#include <future>

#include "trireme/core/quiet_thread.h"

namespace trireme::comm {

OperationQueue::~OperationQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void OperationQueue::post(Operation operation) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(operation));
    if (!thread_.joinable()) thread_ = start_quiet_thread("a group's operations", [this] { work(); });
  }
  changed_.notify_all();
}

void OperationQueue::run(const Operation& operation) {
  if (take_turn_if_idle()) {
    const struct Turn {
      OperationQueue& queue;
      ~Turn() { queue.end_turn(); }
    } turn{*this};
    operation();
    return;
  }
  const auto done = std::make_shared<std::promise<void>>();  // shared: the worker may still be inside set_value()
  std::future<void> ended = done->get_future();
  post([&operation, done] {
    try {
      operation();
      done->set_value();
    } catch (...) {
      done->set_exception(std::current_exception());
    }
  });
  ended.get();
}

bool OperationQueue::take_turn_if_idle() {
  const std::lock_guard lock(mutex_);
  if (busy_ || !waiting_.empty()) return false;
  busy_ = true;
  return true;
}

void OperationQueue::end_turn() {
  {
    const std::lock_guard lock(mutex_);
    busy_ = false;
    if (waiting_.empty()) return;
  }
  changed_.notify_all();
}

void OperationQueue::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this]() TRIREME_REQUIRES(mutex_) {
      return (!waiting_.empty() && !busy_) || (stop_ && waiting_.empty());
    });
    if (waiting_.empty()) return;
    const Operation operation = std::move(waiting_.front());
    waiting_.pop_front();
    busy_ = true;
    lock.unlock();
    operation();
    lock.lock();
    busy_ = false;
  }
}

}  // namespace trireme::comm
