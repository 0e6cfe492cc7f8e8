// One thread that runs jobs, one after the other, in the order they came.
//
//   Background background("the data loader");
//   std::future<Batch> next = background.run([&] { return fetch(7); });
//   … work …
//   Batch batch = next.get();                  // also rethrows what the job threw
//
// The destructor drops the jobs that have not begun (their futures throw std::future_error) and waits for the one that
// runs.
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

namespace trireme::data {

/// run() may be called from several threads.
class Background {
 public:
  /// Throws SystemError that names `what` when there is no thread to be had.
  explicit Background(const char* what);
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  template <typename Job>
  std::future<std::invoke_result_t<Job>> run(Job job) {
    // shared: a std::function must be copyable, a task is not
    auto task = std::make_shared<std::packaged_task<std::invoke_result_t<Job>()>>(std::move(job));
    push([task] { (*task)(); });
    return task->get_future();
  }

 private:
  void push(std::function<void()> job);
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;  // GUARDED_BY(mutex_)
  bool stop_ = false;                       // GUARDED_BY(mutex_)
  std::thread thread_;
};

}  // namespace trireme::data
