// A few threads that run jobs, begun in the order they came.
//
//   Workers workers(3, "the data loader");
//   std::future<Batch> next = workers.run([&] { return fetch(7); });
//   … work …
//   Batch batch = next.get();                  // also rethrows what the job threw, once
//
// The destructor drops the jobs that have not begun (their futures throw std::future_error) and waits for those that
// run.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/core/thread_annotations.h"

namespace trireme {

/// run() and drop_waiting() may be called from several threads.
class Workers {
 public:
  /// Requires at least one thread. Throws SystemError that names `what` when there is no thread to be had.
  Workers(int threads, const char* what);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  template <typename Job>
  std::future<std::invoke_result_t<Job>> run(Job job) {
    // shared: a std::function must be copyable, a task is not
    auto task = std::make_shared<std::packaged_task<std::invoke_result_t<Job>()>>(std::move(job));
    auto result = task->get_future();
    push([task = std::move(task)] { (*task)(); });
    return result;
  }

  /// Drops the jobs that have not begun.
  void drop_waiting();

 private:
  void push(std::function<void()> job);
  void work();
  void stop();

  Mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_ TRIREME_GUARDED_BY(mutex_);
  bool stop_ TRIREME_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace trireme
