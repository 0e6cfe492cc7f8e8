#include "trireme/parallel/pipeline/cut.h"

#include <gtest/gtest.h>

namespace trireme::parallel {
namespace {

TEST(Cut, TheFirstStagesHaveOneMore) {
  EXPECT_EQ(cut_evenly(7, 3), (Cuts{0, 3, 5, 7}));
  EXPECT_EQ(cut_evenly(3, 3), (Cuts{0, 1, 2, 3}));
  EXPECT_EQ(cut_evenly(5, 1), (Cuts{0, 5}));
}

TEST(Cut, TheHeaviestStageIsAsLightAsCanBe) {
  EXPECT_EQ(cut_by_weight({9, 1, 1, 1, 1, 1, 4}, 2), (Cuts{0, 1, 7}));
  EXPECT_EQ(cut_by_weight({1, 1, 1, 9}, 3), (Cuts{0, 1, 3, 4}));
  EXPECT_EQ(cut_by_weight({3, 3, 3, 3}, 1), (Cuts{0, 4}));
}

TEST(Cut, NoStageIsEmpty) {
  for (const Cuts& cuts : {cut_by_weight({0, 0, 0, 5}, 4), cut_by_weight({5, 0, 0, 0}, 4)})
    EXPECT_EQ(cuts, (Cuts{0, 1, 2, 3, 4}));
}

}  // namespace
}  // namespace trireme::parallel
