#include "trireme/launch/nodes/rank_views.h"

#include <gtest/gtest.h>

#include "trireme/store/memory_store.h"

namespace trireme::launch {
namespace {

using watch::RankSnapshot;

std::vector<RankSnapshot> wait_for_others(RankViews& views) {
  const Deadline deadline = Deadline::in(std::chrono::seconds(20));
  while (!deadline.passed())
    if (auto ranks = views.others(Clock::now()); !ranks.empty()) return ranks;
  return {};
}

TEST(RankViews, AWaitingLauncherSeesTheOthersRanks) {
  const auto keys = std::make_shared<store::MemoryStore>();
  RankViews first({.store = keys, .attempt = 2, .node = 0});
  RankViews second({.store = keys, .attempt = 2, .node = 1});
  first.publish({{.rank = 0, .calls = {{.group = 1, .number = 17, .operation = "all_reduce", .age_ms = 6'000}}}}, true);
  second.publish({{.rank = 1, .state = watch::ProcessState::stopped, .stopped_ms = 7'000}}, false);
  const auto seen = wait_for_others(first);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].rank, 1);
  EXPECT_GE(seen[0].stopped_ms, 7'000);
  const auto waiting = wait_for_others(second);
  ASSERT_EQ(waiting.size(), 1u);
  EXPECT_GE(watch::longest_wait_ms(waiting), 6'000);
}

TEST(RankViews, NodeZeroGetsTheStackOfARankElsewhere) {
  const auto keys = std::make_shared<store::MemoryStore>();
  RankViews first({.store = keys, .attempt = 2, .node = 0});
  RankViews second({.store = keys, .attempt = 2, .node = 1});
  first.publish({{.rank = 0}}, true);
  second.publish({{.rank = 1}}, false);
  const auto take = [&](RankViews& views) {
    std::vector<std::string> lines;
    for (const Deadline deadline = Deadline::in(std::chrono::seconds(20)); lines.empty() && !deadline.passed();)
      lines = views.take_stack();
    return lines;
  };
  second.show_stack({"stack of rank 1:", "  #0 main"});
  EXPECT_EQ(take(first), (std::vector<std::string>{"stack of rank 1:", "  #0 main"}));
  EXPECT_TRUE(first.take_stack().empty()) << "once";
  second.show_stack({"stack of rank 1:", "  #0 main"});
  EXPECT_EQ(take(first).size(), 2u) << "a second verdict";
}

TEST(RankViews, NobodyShowsAnythingWhileNobodyWaits) {
  const auto keys = std::make_shared<store::MemoryStore>();
  {
    RankViews views({.store = keys});
    views.publish({{.rank = 0}}, false);
  }
  EXPECT_TRUE(keys->list("watch/").empty());
}

}  // namespace
}  // namespace trireme::launch
