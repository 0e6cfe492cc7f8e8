#include "trireme/proc/lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::proc {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

TEST(LineCutter, HoldsTheUnfinishedLine) {
  LineCutter cutter;
  EXPECT_EQ(cutter.feed("one\ntw"), "one\n");
  EXPECT_TRUE(cutter.holds_something());
  EXPECT_EQ(cutter.feed("o\n"), "two\n");
  EXPECT_FALSE(cutter.holds_something());
}

TEST(LineCutter, ACarriageReturnEndsALineToo) {
  LineCutter cutter;
  EXPECT_EQ(cutter.feed("10%\r20%"), "10%\r");
  EXPECT_EQ(cutter.flush(), "20%");
}

TEST(LineCutter, AnEndlessLineIsLetGoInPieces) {
  LineCutter cutter;
  size_t passed = 0;
  const std::string block(10'000, 'x');
  for (int i = 0; i < 1000; ++i) {
    passed += cutter.feed(block).size();
    ASSERT_LT(i * block.size() + block.size() - passed, LineCutter::kMaxHeld);
  }
  EXPECT_EQ(passed + cutter.flush().size(), 1000 * block.size());
}

TEST(LineJoiner, PrefixesEveryLineOnce) {
  LineJoiner joiner;
  EXPECT_EQ(joiner.add(0, "a:0 ", "one\ntwo\n"), "a:0 one\na:0 two\n");
  EXPECT_EQ(joiner.add(0, "a:0 ", "thr"), "a:0 thr");
  EXPECT_EQ(joiner.add(0, "a:0 ", "ee\n"), "ee\n");
}

TEST(LineJoiner, NeverMixesTheLinesOfTwoOwners) {
  LineJoiner joiner;
  EXPECT_EQ(joiner.add(0, "", "half"), "half");
  EXPECT_EQ(joiner.add(1, "b ", "whole\n"), "\nb whole\n");
  EXPECT_EQ(joiner.add(0, "", "rest\n"), "rest\n");
}

TEST(LineJoiner, ProgressBarsKeepTheirPrefixAndAreNotOverwritten) {
  LineJoiner joiner;
  EXPECT_EQ(joiner.add(0, "p ", "10%\r"), "p 10%\r");
  EXPECT_EQ(joiner.add(0, "p ", "20%\r"), "p 20%\r");
  EXPECT_EQ(joiner.add(1, "q ", "x\n"), "\nq x\n");
}

TEST(Tail, KeepsTheLastLinesPrintable) {
  Tail tail(2);
  tail.add("one\ntwo\nthr");
  tail.add("ee\x01\n\n");
  EXPECT_THAT(tail.lines(), ElementsAre("two", "three\\x01"));
}

TEST(Tail, CutsAnEndlessLine) {
  Tail tail(3);
  for (int i = 0; i < 100; ++i) tail.add(std::string(1000, 'x'));
  EXPECT_THAT(tail.lines(), ElementsAre(SizeIs(2000)));
}

}  // namespace
}  // namespace trireme::proc
