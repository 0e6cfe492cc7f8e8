#include "trireme/watch/snapshot.h"

#include <gtest/gtest.h>

#include "trireme/core/error.h"

namespace trireme::watch {
namespace {

TEST(Snapshot, CallsInWords) {
  Call call{
      .number = 17, .operation = "all_reduce", .dtype = "float", .reduce = "sum", .sizes = {1000}, .size_count = 1};
  EXPECT_EQ(describe(call), "all_reduce #17 float[1000] sum");
  call = {.number = 3, .operation = "broadcast", .dtype = "int64", .sizes = {1, 2, 3, 4}, .size_count = 6, .root = 2};
  EXPECT_EQ(describe(call), "broadcast #3 int64[1, 2, 3, 4, ...] with root 2");
  call = {.operation = "send", .dtype = "float", .sizes = {10}, .size_count = 1, .peer = 4};
  EXPECT_EQ(describe(call), "send float[10] to rank 4");
  call.operation = "recv";
  EXPECT_EQ(describe(call), "recv float[10] from rank 4");
  EXPECT_EQ(describe({.operation = "new_group"}), "new_group");
}

TEST(Snapshot, NoWaitIsOlderThanTheLaunchersLook) {
  const UniqueFd file = make_ring_file(0);
  const auto ring = Ring::map(file.get(), Access::write);
  const int64_t now = now_ns();
  ring->start_call({.group = 1, .number = 1, .started = now - 50'000'000'000}, ring->start_group({.id = 1, .size = 2}));
  EXPECT_EQ(longest_wait_ms({take_snapshot(*ring, now, 1'000'000)}), 50'000);
  EXPECT_EQ(longest_wait_ms({take_snapshot(*ring, now, 3'000)}), 3'000);
  EXPECT_EQ(longest_wait_ms({}), 0);
}

TEST(Snapshot, SinceWhenARankHasNotMoved) {
  const UniqueFd file = make_ring_file(0);
  const auto ring = Ring::map(file.get(), Access::write);
  const int64_t now = now_ns();
  const auto still_ms = [&](int64_t observed) { return take_snapshot(*ring, now, observed).still_ms; };
  EXPECT_EQ(still_ms(1'000'000), -1) << "nothing is recorded";
  ring->set_step(1, now - 50'000'000'000);
  EXPECT_EQ(still_ms(1'000'000), 50'000);
  EXPECT_EQ(still_ms(3'000), 3'000);
  ring->set_phase(Phase::data, now - 40'000'000'000);
  EXPECT_EQ(still_ms(1'000'000), 40'000);
  ring->append({.started = now - 30'000'000'000, .ended = now - 30'000'000'000, .kind = EventKind::value});
  EXPECT_EQ(still_ms(1'000'000), 30'000);
  ring->start_call({.group = 1, .number = 1, .started = now - 20'000'000'000}, ring->start_group({.id = 1, .size = 2}));
  EXPECT_EQ(still_ms(1'000'000), 20'000);
}

TEST(Snapshot, TravelsAsText) {
  RankSnapshot rank{
      .rank = 3, .state = ProcessState::stopped, .stopped_ms = 5, .step = 7, .phase = Phase::data, .still_ms = 9};
  rank.groups = {{.id = ~uint64_t{0}, .size = 2, .ranks = {1, 3}, .begun = 4}};
  rank.calls = {{.group = 9, .number = 1, .operation = "all_gather", .sizes = {2, 3}, .size_count = 2, .age_ms = 8}};
  EXPECT_EQ(snapshots_from_json(to_json({rank})), std::vector<RankSnapshot>{rank});
  for (const char* text : {"", "{}", "[1]", R"([{"rank": 1}])"})
    EXPECT_THROW(snapshots_from_json(text), PeerError) << text;
  rank.rank = -1;
  EXPECT_THROW(snapshots_from_json(to_json({rank})), PeerError);
  rank.rank = 3;
  rank.groups[0].size = 1 << 20;
  EXPECT_EQ(snapshots_from_json(to_json({rank})).size(), 1u);
  rank.groups[0].size = 4'000'000'000;
  EXPECT_THROW(snapshots_from_json(to_json({rank})), PeerError) << "a list of so many ranks takes 16 GB";
}

}  // namespace
}  // namespace trireme::watch
