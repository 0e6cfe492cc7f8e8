#include "trireme/launch/nodes/link_probe.h"

#include <gtest/gtest.h>

#include <atomic>

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kLong = 20s;

// Node 1 is always reached, node 2 while `reached`.
class LinkProbeTest : public testing::Test {
 protected:
  std::optional<LinkProbe::Cut> wait_for_cut() {
    const Deadline deadline = Deadline::in(kLong);
    for (;;) {
      const int tries = tries_;
      if (auto cut = probe_.cut(0ms)) return cut;
      while (tries_ == tries && !deadline.passed()) std::this_thread::yield();
      if (deadline.passed()) return std::nullopt;
    }
  }
  void wait_for_tries(int more) {
    const int enough = tries_ + more;
    for (const Deadline deadline = Deadline::in(kLong); tries_ < enough && !deadline.passed();)
      std::this_thread::yield();
  }

  std::atomic<bool> reached_ = false;
  std::atomic<int> tries_ = 0;
  LinkProbe probe_{[this](int node) {
    ++tries_;
    return node == 1 || reached_ ? "" : "no route";
  }};
};

TEST_F(LinkProbeTest, ANodeThatIsNotReached) {
  probe_.try_nodes({1, 2});
  const auto cut = wait_for_cut();
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->node, 2);
  EXPECT_EQ(cut->why, "no route");
  EXPECT_FALSE(probe_.cut(1h)) << "it fails since a moment only";
}

TEST_F(LinkProbeTest, OneFailedTryIsNoCut) {
  probe_.try_nodes({2});
  ASSERT_TRUE(wait_for_cut());
  const Deadline deadline = Deadline::in(kLong);
  std::optional<LinkProbe::Cut> cut;
  while (!(cut = probe_.cut(500ms)) && !deadline.passed()) std::this_thread::yield();
  ASSERT_TRUE(cut);
  EXPECT_GE(tries_, 2) << "the time is that between two tries";
}

TEST_F(LinkProbeTest, ANodeThatIsReachedAgain) {
  probe_.try_nodes({2});
  ASSERT_TRUE(wait_for_cut());
  reached_ = true;
  wait_for_tries(2);  // the first of them has been noted
  EXPECT_FALSE(probe_.cut(0ms));
}

TEST_F(LinkProbeTest, ANodeThatIsNotTriedAnyMoreIsForgotten) {
  probe_.try_nodes({2});
  ASSERT_TRUE(wait_for_cut());
  probe_.try_nodes({1});
  EXPECT_FALSE(probe_.cut(0ms));
}

}  // namespace
}  // namespace trireme::launch
