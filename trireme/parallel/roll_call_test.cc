#include "trireme/parallel/roll_call.h"

#include <gmock/gmock.h>

#include <latch>

#include "trireme/parallel/test_ranks.h"

namespace trireme::parallel {
namespace {

using ::testing::ElementsAre;
using testing::run_ranks;

TEST(RollCall, TellsWhichRanksTakePart) {
  run_ranks(3, [](const Group& group) {
    RollCall roll_call(group);
    roll_call.begin({.active = group.rank() != 1});
    roll_call.wait();
    EXPECT_THAT(roll_call.active(), ElementsAre(0, 2));
    roll_call.begin({.active = group.rank() == 1});
    roll_call.wait();
    EXPECT_THAT(roll_call.active(), ElementsAre(1)) << "the answers of the second call";
  });
}

TEST(RollCall, TellsThatSomeRankWantsALook) {
  run_ranks(3, [](const Group& group) {
    RollCall roll_call(group);
    roll_call.begin({.look = group.rank() == 2});
    roll_call.wait();
    EXPECT_TRUE(roll_call.look());
    EXPECT_THAT(roll_call.active(), ElementsAre(0, 1, 2)) << "to want a look is no absence";
    EXPECT_FALSE(roll_call.by_hand());
    roll_call.begin({.by_hand = group.rank() == 0});
    roll_call.wait();
    EXPECT_TRUE(roll_call.by_hand());
    EXPECT_FALSE(roll_call.look());
    roll_call.begin({});
    roll_call.wait();
    EXPECT_FALSE(roll_call.look() || roll_call.by_hand());
  });
}

TEST(RollCall, FindsARankWithAnotherModel) {
  run_ranks(3, [](const Group& group) {
    RollCall roll_call(group);
    roll_call.begin({.model = 7});
    roll_call.wait();
    EXPECT_EQ(roll_call.with_another_model(), -1);
    const uint64_t top_bit = uint64_t{1} << 63;
    roll_call.begin({.model = group.rank() == 2 ? top_bit + 7 : 7});
    roll_call.wait();
    EXPECT_EQ(roll_call.with_another_model(), group.rank() == 2 ? 0 : 2);
  });
}

TEST(RollCall, BeginsWithoutWaitingForTheOthers) {
  std::latch first_has_begun(1);
  run_ranks(2, [&](const Group& group) {
    RollCall roll_call(group);
    if (group.rank() == 1) first_has_begun.wait();
    roll_call.begin({});
    if (group.rank() == 0) first_has_begun.count_down();
    roll_call.wait();
    EXPECT_THAT(roll_call.active(), ElementsAre(0, 1));
  });
}

}  // namespace
}  // namespace trireme::parallel
