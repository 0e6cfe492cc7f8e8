// The operations of one group, or of one direction between two ranks, one after the other in the order of the calls.
//
//   queue.post([] { … });      // later, on the queue's own thread
//   queue.run([] { … });       // now, on the caller's thread if nothing is before it: no thread has to wake up
//
// Thread rule: all from any thread. The destructor runs what is left, so make it end soon before (Engine::abort).
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "trireme/core/thread_annotations.h"

namespace trireme::comm {

class OperationQueue {
 public:
  using Operation = std::function<void()>;

  OperationQueue() = default;
  ~OperationQueue();
  OperationQueue(const OperationQueue&) = delete;
  OperationQueue& operator=(const OperationQueue&) = delete;

  /// `operation` must not throw.
  void post(Operation operation);
  /// Returns when `operation` has returned; what it throws is thrown here.
  void run(const Operation& operation);

 private:
  void work();
  bool take_turn_if_idle();
  void end_turn();

  Mutex mutex_;
  std::condition_variable changed_;
  std::deque<Operation> waiting_ TRIREME_GUARDED_BY(mutex_);
  bool busy_ TRIREME_GUARDED_BY(mutex_) = false;  // someone runs an operation
  bool stop_ TRIREME_GUARDED_BY(mutex_) = false;
  std::thread thread_ TRIREME_GUARDED_BY(mutex_);  // started by the first post()
};

}  // namespace trireme::comm
