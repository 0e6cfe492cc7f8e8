#include "trireme/pipeline/background.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace trireme::data {
namespace {

constexpr std::chrono::seconds kPatience(20);

template <typename T>
T get(std::future<T>& future) {
  if (future.wait_for(kPatience) != std::future_status::ready) throw std::runtime_error("the job did not run");
  return future.get();
}

TEST(Background, RunsJobsElsewhereInOrder) {
  Background background("a test");
  std::vector<int> ran;  // by the one thread only, until the last job is done
  std::vector<std::future<std::thread::id>> jobs;
  for (int i = 0; i < 5; ++i)
    jobs.push_back(background.run([&ran, i] {
      ran.push_back(i);
      return std::this_thread::get_id();
    }));
  const auto id = get(jobs.back());
  EXPECT_NE(id, std::this_thread::get_id());
  EXPECT_EQ(get(jobs.front()), id);
  EXPECT_EQ(ran, (std::vector<int>{0, 1, 2, 3, 4}));
}

TEST(Background, ThrowsInTheCallersThreadAndGoesOn) {
  Background background("a test");
  auto bad = background.run([]() -> int { throw std::out_of_range("no sample 7"); });
  auto good = background.run([] { return 3; });
  EXPECT_THROW(get(bad), std::out_of_range);
  EXPECT_EQ(get(good), 3);
}

TEST(Background, EndsWithJobsLeft) {
  std::promise<void> release;
  std::promise<void> running;
  auto held = release.get_future().share();
  std::future<int> first, second;
  {
    auto background = std::make_unique<Background>("a test");
    first = background->run([&running, held] {
      running.set_value();
      held.wait_for(kPatience);
      return 1;
    });
    second = background->run([] { return 2; });
    ASSERT_EQ(running.get_future().wait_for(kPatience), std::future_status::ready);
    std::thread ending([&background] { background.reset(); });
    EXPECT_THROW(get(second), std::future_error);  // dropped at once, while the first still runs
    release.set_value();
    ending.join();
  }
  EXPECT_EQ(get(first), 1);
}

TEST(Background, AResultNobodyWantsIsDropped) {
  Background background("a test");
  {
    auto unwanted = background.run([] { return 1; });
  }
  auto wanted = background.run([] { return 2; });
  EXPECT_EQ(get(wanted), 2);
}

}  // namespace
}  // namespace trireme::data
