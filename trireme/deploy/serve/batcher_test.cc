#include "trireme/deploy/serve/batcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <string>
#include <thread>

namespace trireme::serve {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Ge;
using testing::Le;

const Deadline kSoon = Deadline::in(seconds(30));

/// An engine that doubles, remembers its batches, and can be held at a gate.
struct Doubler {
  std::vector<int> operator()(const std::vector<int>& batch) {
    {
      std::lock_guard lock(mutex);
      sizes.push_back(batch.size());
      ++entered;
    }
    changed.notify_all();
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return open; });
    std::vector<int> doubled;
    for (const int value : batch) doubled.push_back(2 * value);
    return doubled;
  }
  void shut() {
    std::lock_guard lock(mutex);
    open = false;
  }
  void release() {
    {
      std::lock_guard lock(mutex);
      open = true;
    }
    changed.notify_all();
  }
  void wait_entered(int count) {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, seconds(30), [&] { return entered >= count; }));
  }

  std::mutex mutex;
  std::condition_variable changed;
  bool open = true;
  int entered = 0;
  std::vector<size_t> sizes;
};

using IntBatcher = Batcher<int, int>;

struct Held {
  explicit Held(BatcherOptions options)
      : batcher(options, [this](const std::vector<int>& batch) { return engine(batch); }) {}
  ~Held() { engine.release(); }

  /// Occupies the engine with a batch of one, then lets `count` calls wait in the queue.
  std::vector<std::future<std::vector<int>>> fill(int count) {
    engine.shut();
    std::vector<std::future<std::vector<int>>> calls;
    calls.push_back(call(100));
    engine.wait_entered(1);
    for (int i = 0; i < count; ++i) {
      calls.push_back(call(i));
      wait_waiting(static_cast<size_t>(i) + 1);
    }
    return calls;
  }
  std::future<std::vector<int>> call(int value, Deadline deadline = kSoon) {
    return std::async(std::launch::async, [=, this] { return batcher.run({value}, deadline); });
  }
  void wait_waiting(size_t count) {
    while (batcher.waiting() < count && !kSoon.passed()) std::this_thread::yield();
    ASSERT_EQ(batcher.waiting(), count);
  }

  Doubler engine;
  IntBatcher batcher;
};

Unanswered reason_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UnansweredError& error) {
    return error.reason();
  }
  throw std::logic_error("it was answered");
}

TEST(Batcher, GivesEachCallerItsOwn) {
  Held held({.max_batch = 4});
  EXPECT_THAT(held.batcher.run({1, 2, 3, 4, 5, 6, 7, 8, 9}, kSoon), ElementsAre(2, 4, 6, 8, 10, 12, 14, 16, 18));
  EXPECT_THAT(held.engine.sizes, Each(Le(4U)));
  EXPECT_TRUE(held.batcher.run({}, kSoon).empty());
}

TEST(Batcher, ManyCallersAtOnceAreAllAnsweredRightly) {
  constexpr int kThreads = 16, kCalls = 200;
  Held held({.max_batch = 8, .max_wait = Millis(0), .max_queue = 1000});
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) {
        const int value = t * kCalls + i;
        if (held.batcher.run({value, -value}, kSoon) != std::vector<int>{2 * value, -2 * value}) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  size_t total = 0;
  for (const size_t size : held.engine.sizes) total += size;
  EXPECT_EQ(total, 2U * kThreads * kCalls);
  EXPECT_THAT(held.engine.sizes, Each(AllOf(Ge(1U), Le(8U))));
}

TEST(Batcher, ALoneCallDoesNotWaitForCompany) {
  Held held({.max_batch = 8, .max_wait = seconds(60)});
  for (int i = 0; i < 3; ++i) EXPECT_THAT(held.batcher.run({i}, kSoon), ElementsAre(2 * i));
  EXPECT_THAT(held.engine.sizes, ElementsAre(1, 1, 1));
}

TEST(Batcher, ThoseWhoWaitedWhileItWasBusyGoTogether) {
  Held held({.max_batch = 4, .max_wait = seconds(60)});
  auto calls = held.fill(4);
  held.engine.release();
  for (auto& call : calls) call.get();
  EXPECT_THAT(held.engine.sizes, ElementsAre(1, 4));
}

TEST(Batcher, AnUnfilledBatchLeavesWhenTheOldestHasWaitedLongEnough) {
  Held held({.max_batch = 4, .max_wait = Millis(50)});
  auto calls = held.fill(2);
  held.engine.release();
  for (auto& call : calls) EXPECT_EQ(call.wait_for(seconds(30)), std::future_status::ready);
  EXPECT_THAT(held.engine.sizes, ElementsAre(1, 2));
}

TEST(Batcher, AFullBatchDoesNotWait) {
  Held held({.max_batch = 2, .max_wait = seconds(60)});
  auto calls = held.fill(6);
  held.engine.release();
  for (auto& call : calls) call.get();
  EXPECT_THAT(held.engine.sizes, ElementsAre(1, 2, 2, 2));
}

TEST(Batcher, RefusesWhatTheQueueCannotHoldAllOrNone) {
  Held held({.max_batch = 1, .max_queue = 3});
  auto calls = held.fill(2);
  EXPECT_EQ(reason_of([&] { held.batcher.run({1, 2}, kSoon); }), Unanswered::queue_full);
  EXPECT_EQ(held.batcher.waiting(), 2U);
  calls.push_back(held.call(7));
  held.wait_waiting(3);
  EXPECT_EQ(reason_of([&] { held.batcher.run({1}, kSoon); }), Unanswered::queue_full);
  EXPECT_EQ(reason_of([&] { held.batcher.run({1, 2, 3, 4, 5}, kSoon); }), Unanswered::queue_full);
  held.engine.release();
  EXPECT_THAT(calls.back().get(), ElementsAre(14));
}

TEST(Batcher, ACallThatTimesOutLeavesTheQueueAndIsNotRun) {
  Held held({.max_batch = 1});
  auto calls = held.fill(0);
  EXPECT_EQ(reason_of([&] { held.batcher.run({1, 2, 3}, Deadline::in(Millis(20))); }), Unanswered::timed_out);
  EXPECT_EQ(held.batcher.waiting(), 0U);
  held.engine.release();
  calls[0].get();
  EXPECT_THAT(held.batcher.run({4}, kSoon), ElementsAre(8));
  EXPECT_THAT(held.engine.sizes, ElementsAre(1, 1));
}

TEST(Batcher, ACallMayTimeOutWhileItsBatchRuns) {
  Held held({.max_batch = 1});
  held.engine.shut();
  EXPECT_EQ(reason_of([&] { held.batcher.run({1}, Deadline::in(Millis(20))); }), Unanswered::timed_out);
  held.engine.release();
  EXPECT_THAT(held.batcher.run({2}, kSoon), ElementsAre(4));
}

TEST(Batcher, StopAnswersWhatWaitsAndRefusesTheRest) {
  Held held({.max_batch = 2, .max_wait = seconds(60)});
  auto calls = held.fill(3);
  auto stop = std::async(std::launch::async, [&] { held.batcher.stop(); });
  Unanswered refused{};
  const auto try_one = [&] {
    try {
      held.batcher.run({1}, Deadline::in(Millis(1)));
    } catch (const UnansweredError& error) {
      refused = error.reason();
    }
    return refused == Unanswered::stopped;
  };
  while (!try_one() && !kSoon.passed()) std::this_thread::yield();
  EXPECT_EQ(refused, Unanswered::stopped);
  held.engine.release();
  for (size_t i = 0; i < 3; ++i) EXPECT_THAT(calls[i + 1].get(), ElementsAre(2 * static_cast<int>(i)));
  stop.get();
}

TEST(Batcher, AnEngineThatThrowsFailsItsBatchOnly) {
  IntBatcher batcher({.max_batch = 2}, [](const std::vector<int>& batch) {
    if (batch[0] < 0) throw std::runtime_error("negative");
    return batch;
  });
  EXPECT_THROW(batcher.run({-1}, kSoon), std::runtime_error);
  EXPECT_THROW(batcher.run({1, 2, -3, 4}, kSoon), std::runtime_error);
  EXPECT_THAT(batcher.run({5}, kSoon), ElementsAre(5));
}

TEST(Batcher, AnEngineThatAnswersTooFewIsAnError) {
  IntBatcher batcher({}, [](const std::vector<int>&) { return std::vector<int>{}; });
  EXPECT_THROW(batcher.run({1}, kSoon), std::logic_error);
}

TEST(Batcher, InputsNeedNotBeCopyable) {
  Batcher<std::unique_ptr<int>, int> batcher({}, [](std::vector<std::unique_ptr<int>> batch) {
    std::vector<int> values;
    for (const auto& value : batch) values.push_back(*value);
    return values;
  });
  std::vector<std::unique_ptr<int>> inputs;
  inputs.push_back(std::make_unique<int>(3));
  EXPECT_THAT(batcher.run(std::move(inputs), Deadline::never()), ElementsAre(3));
}

}  // namespace
}  // namespace trireme::serve
