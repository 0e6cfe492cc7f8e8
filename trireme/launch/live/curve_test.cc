#include "trireme/launch/live/curve.h"

#include <gtest/gtest.h>

namespace trireme::launch {
namespace {

TEST(Curve, KeepsItsShapeHoweverLongItGets) {
  Curve curve;
  for (int64_t step = 1; step <= 100'000; ++step)
    curve.add({.step = step, .seconds = static_cast<double>(step), .value = static_cast<double>(step)});
  const auto points = curve.points();
  EXPECT_LE(points.size(), Curve::kMaxPoints);
  EXPECT_GE(points.size(), Curve::kMaxPoints / 2);
  EXPECT_EQ(points.back().step, 100'000);
  for (size_t i = 1; i < points.size(); ++i) EXPECT_GT(points[i].value, points[i - 1].value);
  EXPECT_NEAR(points.front().value, (static_cast<double>(curve.stride()) + 1) / 2, 1) << "a mean of its neighbours";
}

TEST(Curve, AShortOneIsExact) {
  Curve curve;
  EXPECT_FALSE(curve.newest());
  curve.add({.step = 3, .seconds = 0.5, .value = 0.25});
  ASSERT_EQ(curve.points().size(), 1u);
  EXPECT_EQ(curve.points()[0].value, 0.25);
  EXPECT_EQ(curve.newest()->step, 3);
}

}  // namespace
}  // namespace trireme::launch
