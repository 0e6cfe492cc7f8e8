#include "trireme/parallel/sharded/gather_order.h"

#include <gtest/gtest.h>

namespace trireme::parallel {
namespace {

TEST(GatherOrder, TheSecondStepKnowsWhatComesNext) {
  GatherOrder order;
  for (const size_t unit : {0, 0, 1, 2, 2, 1, 0}) {
    order.use(unit);
    EXPECT_FALSE(order.next());
  }
  order.end_of_step();
  order.use(0);
  EXPECT_EQ(order.next(), 1u);
  order.use(0);
  EXPECT_EQ(order.next(), 1u);
  order.use(1);
  order.use(2);
  EXPECT_EQ(order.next(), 1u);
  order.use(1);
  order.use(0);
  EXPECT_FALSE(order.next());
}

TEST(GatherOrder, AnotherWayIsNotForeseen) {
  GatherOrder order;
  for (const size_t unit : {0, 1, 2}) order.use(unit);
  order.end_of_step();
  order.use(0);
  order.use(2);
  EXPECT_FALSE(order.next());
  order.end_of_step();
  order.use(0);
  EXPECT_EQ(order.next(), 2u);
}

}  // namespace
}  // namespace trireme::parallel
