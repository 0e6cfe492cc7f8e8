#include "trireme/deploy/serve/budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "trireme/core/clock.h"

namespace trireme::serve {
namespace {

using std::chrono::seconds;

Deadline soon() {
  return Deadline::in(seconds(20));
}

void wait_waiting(const Budget& budget, size_t count) {
  const Deadline deadline = soon();
  while (budget.waiting() != count && !deadline.passed()) std::this_thread::yield();
  ASSERT_EQ(budget.waiting(), count);
}

TEST(Budget, SharesComeBackWithTheirEnd) {
  Budget budget(10);
  {
    const auto all = budget.take(10, soon());
    ASSERT_TRUE(all);
    EXPECT_EQ(budget.used(), 10U);
    EXPECT_FALSE(budget.take(1, Deadline::in(Millis(0))));
  }
  EXPECT_EQ(budget.used(), 0U);
  EXPECT_TRUE(budget.take(10, Deadline::in(Millis(0)))) << "enough is there: no wait, so no deadline";
  EXPECT_EQ(budget.used(), 0U);
}

TEST(Budget, AShareThatMovesComesBackOnce) {
  Budget budget(10);
  auto first = budget.take(6, soon());
  {
    const Budget::Share second = *std::move(first);
    first.reset();
    EXPECT_EQ(budget.used(), 6U);
  }
  EXPECT_EQ(budget.used(), 0U);
}

TEST(Budget, OfAShareAPartMayBeKept) {
  Budget budget(10);
  {
    auto share = budget.take(10, soon());
    auto next = std::async(std::launch::async, [&] { return budget.take(7, soon()).has_value(); });
    wait_waiting(budget, 1);
    share->keep(3);
    EXPECT_TRUE(next.get());
    EXPECT_EQ(budget.used(), 3U);
  }
  EXPECT_EQ(budget.used(), 0U);
}

TEST(Budget, TheLargeAreNotPassedByTheSmall) {
  Budget budget(10);
  auto held = budget.take(6, soon());
  std::atomic<int> order{0};
  auto large = std::async(std::launch::async, [&] {
    const auto share = budget.take(10, soon());
    return share ? ++order : 0;
  });
  wait_waiting(budget, 1);
  auto small = std::async(std::launch::async, [&] {
    const auto share = budget.take(1, Deadline::never());
    return share ? ++order : 0;
  });
  wait_waiting(budget, 2);  // though four are free
  held.reset();
  EXPECT_EQ(large.get(), 1);
  EXPECT_EQ(small.get(), 2);
}

TEST(Budget, WhoGivesUpHoldsUpNobody) {
  Budget budget(10);
  const auto held = budget.take(6, soon());
  auto large = std::async(std::launch::async, [&] { return budget.take(10, Deadline::in(Millis(50))).has_value(); });
  auto small = std::async(std::launch::async, [&] { return budget.take(4, soon()).has_value(); });
  EXPECT_FALSE(large.get());
  EXPECT_TRUE(small.get());
  EXPECT_EQ(budget.waiting(), 0U);
}

TEST(Budget, IsNeverExceeded) {
  Budget budget(10);
  std::atomic<size_t> held{0}, most{0};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (size_t turn = 0; turn < 500; ++turn) {
        const size_t bytes = (turn * 7 + i) % 11;
        const auto share = budget.take(bytes, soon());
        ASSERT_TRUE(share);
        const size_t now = held += bytes;
        size_t seen = most;
        while (seen < now && !most.compare_exchange_weak(seen, now)) {
        }
        held -= bytes;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, 10U);
  EXPECT_EQ(budget.used(), 0U);
}

}  // namespace
}  // namespace trireme::serve
