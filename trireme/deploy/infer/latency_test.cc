#include "trireme/deploy/infer/latency.h"

#include <gtest/gtest.h>

namespace trireme::infer {
namespace {

using std::chrono::milliseconds;

TEST(Latency, OfNothingIsNothing) {
  const Latency none;
  EXPECT_EQ(none.mean(), 0);
  EXPECT_EQ(none.percentile(50), 0);
}

TEST(Latency, IsTheNearestRank) {
  Latency latency;
  for (int i = 100; i >= 1; --i) latency.add(milliseconds(i));
  EXPECT_EQ(latency.percentile(50), 50);
  EXPECT_EQ(latency.percentile(99), 99);
  EXPECT_EQ(latency.percentile(100), 100);
  EXPECT_EQ(latency.percentile(0), 1);
  EXPECT_DOUBLE_EQ(latency.mean(), 50.5);
}

TEST(Latency, OfOneIsThatOne) {
  Latency latency;
  latency.add(std::chrono::microseconds(1500));
  EXPECT_DOUBLE_EQ(latency.percentile(50), 1.5);
  EXPECT_DOUBLE_EQ(latency.percentile(99), 1.5);
}

}  // namespace
}  // namespace trireme::infer
