#include "trireme/launch/progress_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/launch/live_line.h"

namespace trireme::launch {
namespace {

JobTotals training() {
  JobTotals totals;
  totals.step = 120;
  totals.steps_per_second = 4;
  totals.samples_per_second = 1280;
  totals.values = {{"loss", 0.43211}, {"lr", 0.1}, {"top1", 0.9125}};
  return totals;
}

TEST(ProgressLine, HasAllThatIsKnown) {
  JobTotals totals = training();
  EXPECT_EQ(progress_line(totals), "step 120, 1280 samples/s, loss 0.4321, top1 0.9125");
  totals.goal = {.epoch = 2, .epochs = 5, .last_step = 640};
  totals.slowest = 1;
  EXPECT_EQ(
      progress_line(totals),
      "epoch 2/5, step 120/640, 1280 samples/s, loss 0.4321, top1 0.9125, ETA 0:02:10; the others wait for rank 1");
}

TEST(ProgressLine, ALoopWithoutEpochsAndSamples) {
  JobTotals totals;
  totals.step = 10;
  totals.steps_per_second = 2;
  totals.goal.last_step = 20;
  EXPECT_EQ(progress_line(totals), "step 10/20, 2.0 steps/s, ETA 0:00:05");
  totals.step = 30;
  EXPECT_EQ(progress_line(totals), "step 30/20, 2.0 steps/s, ETA 0:00:00");
}

TEST(RelayedLine, IsTakenOutOfTheOtherBytes) {
  RelayedLine relayed;
  std::vector<std::string> shown;
  std::string others;
  for (const char* bytes : {"one\n\x1estep 1\ntw", "o\x1e\n\x1est", "ep 2", "\nname? ", "\x1eno", "\n\x1e\n"})
    others += relayed.take_out(bytes, [&](const std::string& text) { shown.push_back(text); });
  EXPECT_EQ(others, "one\ntwo\x1e\nname? \x1eno\n");
  EXPECT_THAT(shown, testing::ElementsAre("step 1", "step 2", ""));
}

TEST(RelayedLine, AnEndlessOneIsOutput) {
  RelayedLine relayed;
  const std::string endless = "\x1e" + std::string(10'000, 'x');
  EXPECT_EQ(relayed.take_out(endless, [](const std::string&) {}), endless);
}

TEST(ProgressLine, IsEmptyBeforeTheFirstStep) {
  EXPECT_EQ(progress_line({}), "");
}

}  // namespace
}  // namespace trireme::launch
