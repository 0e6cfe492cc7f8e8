#include "trireme/parallel/sharded/shard_plan.h"

#include <gtest/gtest.h>

namespace trireme::parallel {
namespace {

TEST(ShardPlan, NeighboursShareAUnitUpToItsSize) {
  const std::vector<UnitPlan> units = plan_units({{100}, {10}, {200}, {5}}, 1024, 2);
  ASSERT_EQ(units.size(), 2u);
  EXPECT_EQ(units[0].members, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(units[0].offsets, (std::vector<int64_t>{0, 112}));  // 100 rounded up to 64 bytes
  EXPECT_EQ(units[1].members, (std::vector<size_t>{2, 3}));
}

TEST(ShardPlan, ALargeTensorHasAUnitOfItsOwn) {
  const std::vector<UnitPlan> units = plan_units({{10}, {1000}, {10}}, 64, 4);
  ASSERT_EQ(units.size(), 3u);
  EXPECT_EQ(units[1].shard, 256);  // 250 rounded up to 64 bytes
}

TEST(ShardPlan, KindsDoNotMix) {
  const std::vector<UnitPlan> units = plan_units({{8, 4, 0}, {8, 2, 1}, {8, 4, 0}}, 1 << 20, 1);
  ASSERT_EQ(units.size(), 2u);
  EXPECT_EQ(units[0].members, (std::vector<size_t>{0, 2}));
  EXPECT_EQ(units[1].members, (std::vector<size_t>{1}));
}

// Every element of every tensor lies in exactly one piece, and the pieces of a rank lie within its shard.
TEST(ShardPlan, PiecesCoverEveryTensorOnce) {
  const std::vector<PlannedTensor> tensors = {{1}, {63}, {64}, {0}, {1000}, {7}, {3}};
  for (const int ranks : {1, 2, 3, 8})
    for (const int64_t bytes : {64, 300, 1 << 20})
      for (const UnitPlan& unit : plan_units(tensors, bytes, ranks))
        for (size_t member = 0; member < unit.members.size(); ++member) {
          int64_t next = 0;
          for (int rank = 0; rank < ranks; ++rank) {
            const Range piece = unit.piece(member, rank);
            if (piece.length() == 0) continue;
            EXPECT_EQ(piece.begin, next);
            EXPECT_GE(unit.offsets[member] + piece.begin, unit.shard * rank);
            EXPECT_LE(unit.offsets[member] + piece.end, unit.shard * (rank + 1));
            next = piece.end;
          }
          EXPECT_EQ(next, unit.lengths[member]) << ranks << " ranks, units of " << bytes << " bytes";
        }
}

}  // namespace
}  // namespace trireme::parallel
