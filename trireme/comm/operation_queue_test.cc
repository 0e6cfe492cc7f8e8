#include "trireme/comm/operation_queue.h"

#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <memory>
#include <stdexcept>
#include <vector>

namespace trireme::comm {
namespace {

using namespace std::chrono_literals;

// Holds the queue's thread until the test lets go.
class Gate {
 public:
  void hold() {
    begun_.set_value();
    open_.get_future().wait_for(10s);
  }
  void await_begin() { EXPECT_EQ(begun_.get_future().wait_for(10s), std::future_status::ready); }
  void open() { open_.set_value(); }

 private:
  std::promise<void> begun_, open_;
};

TEST(OperationQueue, PostedOperationsRunInTheOrderOfTheCallsOnAnotherThread) {
  std::vector<int> order;
  std::thread::id where;
  {
    OperationQueue queue;
    for (int i = 0; i < 1000; ++i)
      queue.post([&, i] {
        order.push_back(i);
        where = std::this_thread::get_id();
      });
  }  // runs what is left
  ASSERT_EQ(order.size(), 1000u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_NE(where, std::this_thread::get_id());
}

TEST(OperationQueue, RunOfAnIdleQueueIsOnTheCallersThread) {
  OperationQueue queue;
  std::thread::id where;
  queue.run([&] { where = std::this_thread::get_id(); });
  EXPECT_EQ(where, std::this_thread::get_id());
}

TEST(OperationQueue, RunWaitsForItsTurn) {
  OperationQueue queue;
  Gate gate;
  std::vector<int> order;
  queue.post([&] {
    gate.hold();
    order.push_back(1);
  });
  gate.await_begin();
  queue.post([&] { order.push_back(2); });
  std::thread opener([&] { gate.open(); });
  queue.run([&] { order.push_back(3); });
  opener.join();
  EXPECT_THAT(order, ::testing::ElementsAre(1, 2, 3));
}

TEST(OperationQueue, PostDuringRunComesAfterIt) {
  OperationQueue queue;
  std::vector<int> order;
  std::promise<void> second;
  queue.run([&] {
    queue.post([&] {
      order.push_back(2);
      second.set_value();
    });
    order.push_back(1);
  });
  ASSERT_EQ(second.get_future().wait_for(10s), std::future_status::ready);
  EXPECT_THAT(order, ::testing::ElementsAre(1, 2));
}

TEST(OperationQueue, WhatRunThrowsReachesItsCaller) {
  OperationQueue queue;
  const auto fail = [] { throw std::runtime_error("no"); };
  EXPECT_THROW(queue.run(fail), std::runtime_error);
  Gate gate;
  queue.post([&] { gate.hold(); });
  gate.await_begin();
  std::thread opener([&] { gate.open(); });
  EXPECT_THROW(queue.run(fail), std::runtime_error) << "on the queue's thread";
  opener.join();
  bool ran = false;
  queue.run([&] { ran = true; });
  EXPECT_TRUE(ran) << "a failure must not end the queue";
}

TEST(OperationQueue, OneAtATimeFromManyThreads) {
  std::atomic<int> inside = 0, most = 0;
  int count = 0;  // not atomic: the queue orders its operations
  {
    OperationQueue queue;
    const auto operation = [&] {
      most = std::max(most.load(), ++inside);
      ++count;
      --inside;
    };
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 1000; ++i) t % 2 == 0 ? queue.run(operation) : queue.post(operation);
      });
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(count, 4000);
  EXPECT_EQ(most, 1);
}

TEST(OperationQueue, AnOperationIsGoneWhenItHasRun) {
  OperationQueue queue;
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = held;
  queue.post([held = std::move(held)] {});
  bool gone = false;
  queue.run([&] { gone = watch.expired(); });
  EXPECT_TRUE(gone) << "its tensors would live until the next operation";
}

}  // namespace
}  // namespace trireme::comm
