#include "trireme/core/workers.h"

#include "trireme/core/quiet_thread.h"

namespace trireme {

Workers::Workers(int threads, const char* what) {
  threads_.reserve(static_cast<size_t>(threads));
  try {
    for (int i = 0; i < threads; ++i) threads_.push_back(start_quiet_thread(what, [this] { work(); }));
  } catch (...) {
    stop();  // those that did start
    throw;
  }
}

Workers::~Workers() {
  stop();
}

void Workers::stop() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  drop_waiting();  // now: callers that wait for one of these need not wait for the running jobs
  for (std::thread& thread : threads_) thread.join();
}

void Workers::drop_waiting() {
  std::deque<std::function<void()>> dropped;  // destroyed outside of the lock: that may run anyone's destructor
  std::lock_guard lock(mutex_);
  dropped.swap(jobs_);
}

void Workers::push(std::function<void()> job) {
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void Workers::work() {
  while (true) {
    std::function<void()> job;
    {
      // No deadline: this is the threads' rest, and the destructor ends it.
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this]() TRIREME_REQUIRES(mutex_) { return stop_ || !jobs_.empty(); });
      if (stop_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace trireme
