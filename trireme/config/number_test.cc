#include "trireme/config/number.h"

#include <gtest/gtest.h>

#include <string>

namespace trireme::config {
namespace {

TEST(Evaluate, RefusesWhatIsNoNumber) {
  for (const char* text :
       {"",    " ",    "fast", "1x", "1 2", "1/",  "/2",    "(1",       "1)",  "()",  "1//2", "inf",
        "nan", "0x10", "1e",   "e5", "1/0", "0/0", "1e999", "1e308*10", "007", "1,5", "--",   "True"})
    EXPECT_FALSE(evaluate(text)) << text;
}

TEST(Evaluate, IsNotHurtByDeepBrackets) {
  EXPECT_FALSE(evaluate(std::string(1'000'000, '(')));
  EXPECT_FALSE(evaluate(std::string(1'000'000, '-') + "1"));
}

TEST(Evaluate, ReadsNumbers) {
  EXPECT_EQ(evaluate("120"), 120);
  EXPECT_EQ(evaluate("-0.5"), -0.5);
  EXPECT_EQ(evaluate("+3"), 3);
  EXPECT_EQ(evaluate("1e-4"), 1e-4);
  EXPECT_EQ(evaluate(".5"), .5);
  EXPECT_EQ(evaluate("1."), 1);
  EXPECT_EQ(evaluate("0.0001"), 0.0001);
  EXPECT_EQ(evaluate("0"), 0);
}

TEST(Evaluate, ReadsArithmetic) {
  EXPECT_EQ(evaluate("1.0/255.0"), 1.0 / 255.0);
  EXPECT_EQ(evaluate("1.0/3.0"), 1.0 / 3.0);
  EXPECT_EQ(evaluate(" ( 2 + 1 ) * 64 - 4 / 2 "), 190);
  EXPECT_EQ(evaluate("8/2/2"), 2);
  EXPECT_EQ(evaluate("10-2-3"), 5);
  EXPECT_EQ(evaluate("2*-3"), -6);
}

}  // namespace
}  // namespace trireme::config
