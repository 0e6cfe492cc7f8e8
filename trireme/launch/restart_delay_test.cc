#include "trireme/launch/restart_delay.h"

#include <gtest/gtest.h>

namespace trireme::launch {
namespace {

using std::chrono::seconds;

TEST(RestartDelay, DoublesWhileAttemptsAreShort) {
  RestartDelay delay;
  for (const int expected : {0, 1, 2, 4, 8, 16, 30, 30, 30}) EXPECT_EQ(delay.next(seconds(1)), seconds(expected));
}

TEST(RestartDelay, ALongLifeStartsOver) {
  RestartDelay delay;
  for (int i = 0; i < 5; ++i) delay.next(seconds(59));
  EXPECT_EQ(delay.next(seconds(60)), seconds(0));
  EXPECT_EQ(delay.next(seconds(1)), seconds(1));
}

}  // namespace
}  // namespace trireme::launch
