#include "trireme/pipeline/background.h"

#include "trireme/core/quiet_thread.h"

namespace trireme::data {

Background::Background(const char* what) : thread_(start_quiet_thread(what, [this] { work(); })) {}

Background::~Background() {
  std::deque<std::function<void()>> dropped;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    dropped.swap(jobs_);
  }
  changed_.notify_one();
  dropped.clear();  // now: whoever waits for one of these learns it before the running job ends
  thread_.join();
}

void Background::push(std::function<void()> job) {
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void Background::work() {
  while (true) {
    std::function<void()> job;
    {
      // No deadline: this is the thread's rest, and the destructor ends it.
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
      if (stop_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace trireme::data
