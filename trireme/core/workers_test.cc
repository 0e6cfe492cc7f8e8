#include "trireme/core/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <set>
#include <stdexcept>

namespace trireme {
namespace {

constexpr std::chrono::seconds kPatience(20);

template <typename T>
T get(std::future<T>& future) {
  if (future.wait_for(kPatience) != std::future_status::ready) throw std::runtime_error("the job did not run");
  return future.get();
}

class WorkersOf : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, WorkersOf, ::testing::Values(1, 2, 5));

TEST_P(WorkersOf, RunEachJobOnceAndElsewhere) {
  Workers workers(GetParam(), "a test");
  std::vector<std::atomic<int>> ran(200);
  std::vector<std::future<std::thread::id>> jobs;
  for (auto& count : ran)
    jobs.push_back(workers.run([&count] {
      ++count;
      return std::this_thread::get_id();
    }));
  for (auto& job : jobs) EXPECT_NE(get(job), std::this_thread::get_id());
  for (const auto& count : ran) EXPECT_EQ(count, 1);
}

TEST_P(WorkersOf, ThrowInTheCallersThreadAndGoOn) {
  Workers workers(GetParam(), "a test");
  auto bad = workers.run([]() -> int { throw std::out_of_range("no sample 7"); });
  auto good = workers.run([] { return 3; });
  EXPECT_THROW(get(bad), std::out_of_range);
  EXPECT_FALSE(bad.valid());  // once
  EXPECT_EQ(get(good), 3);
}

TEST_P(WorkersOf, AResultNobodyWantsIsDropped) {
  Workers workers(GetParam(), "a test");
  {
    auto unwanted = workers.run([] { return 1; });
  }
  auto wanted = workers.run([] { return 2; });
  EXPECT_EQ(get(wanted), 2);
}

/// Keeps every thread of a pool busy until it is released.
class Hold {
 public:
  Hold(Workers& workers, int threads) {
    const auto until = release_.get_future().share();
    for (int i = 0; i < threads; ++i)
      held_.push_back(workers.run([this, until, i] {
        started_.fetch_add(1);
        started_.notify_all();
        until.wait_for(kPatience);
        return i;
      }));
  }
  void wait_until_all_run() {
    for (int seen = started_; seen < static_cast<int>(held_.size()); seen = started_) started_.wait(seen);
  }
  void release() { release_.set_value(); }
  std::vector<std::future<int>>& jobs() { return held_; }

 private:
  std::promise<void> release_;
  std::atomic<int> started_ = 0;
  std::vector<std::future<int>> held_;
};

TEST(Workers, OneRunsInOrder) {
  Workers workers(1, "a test");
  std::vector<int> ran;  // by the one thread only, until the last job is done
  std::vector<std::future<void>> jobs;
  for (int i = 0; i < 5; ++i) jobs.push_back(workers.run([&ran, i] { ran.push_back(i); }));
  get(jobs.back());
  EXPECT_EQ(ran, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(Workers, RunAtTheSameTime) {
  Workers workers(3, "a test");
  std::barrier meet(3);  // no job would pass it alone
  std::vector<std::future<std::thread::id>> jobs;
  for (int i = 0; i < 3; ++i)
    jobs.push_back(workers.run([&meet] {
      meet.arrive_and_wait();
      return std::this_thread::get_id();
    }));
  std::set<std::thread::id> threads;
  for (auto& job : jobs) threads.insert(get(job));
  EXPECT_EQ(threads.size(), 3u);
}

TEST_P(WorkersOf, EndWithJobsLeft) {
  auto workers = std::make_unique<Workers>(GetParam(), "a test");
  Hold hold(*workers, GetParam());
  auto waiting = workers->run([] { return 2; });
  hold.wait_until_all_run();
  std::thread ending([&workers] { workers.reset(); });
  EXPECT_THROW(get(waiting), std::future_error);  // dropped at once, while the others still run
  hold.release();
  ending.join();
  EXPECT_EQ(get(hold.jobs()[0]), 0);
}

TEST_P(WorkersOf, DropWhatHasNotBegun) {
  Workers workers(GetParam(), "a test");
  Hold hold(workers, GetParam());
  hold.wait_until_all_run();
  auto old = workers.run([] { return 2; });
  workers.drop_waiting();
  auto fresh = workers.run([] { return 3; });
  EXPECT_THROW(get(old), std::future_error);
  hold.release();
  EXPECT_EQ(get(fresh), 3);
  EXPECT_EQ(get(hold.jobs()[0]), 0);
}

}  // namespace
}  // namespace trireme
