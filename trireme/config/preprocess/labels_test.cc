#include "trireme/config/preprocess/labels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/core/test_support.h"

namespace trireme::preprocess {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string refused_labels(std::string_view text) {
  return refusal([&] { parse_labels(text, "ids.txt"); });
}

TEST(Labels, GoByTheirNumbers) {
  EXPECT_THAT(parse_labels("1 goldfish, Carassius\r\n0 tench, Tinca tinca\r\n\n", "f"),
              ElementsAre("tench, Tinca tinca", "goldfish, Carassius"));
  EXPECT_THAT(parse_labels("\xef\xbb\xbf"
                           "0 tench\n",
                           "f"),
              ElementsAre("tench"));
  EXPECT_THAT(parse_labels("0\ttab\n1 7\n", "f"), ElementsAre("tab", "7"));
}

TEST(Labels, WithoutNumbersGoByTheirOrder) {
  EXPECT_THAT(parse_labels("T-shirt/top\nAnkle boot\n3D printer\n", "f"),
              ElementsAre("T-shirt/top", "Ankle boot", "3D printer"));
}

TEST(Labels, RefusesWithTheLine) {
  EXPECT_THAT(refused_labels(" \n"), HasSubstr("no labels"));
  EXPECT_THAT(refused_labels("0 a\nb\n"), HasSubstr("ids.txt:2: 'b' does not begin with a class id"));
  EXPECT_THAT(refused_labels("0 a\n2 c\n"), HasSubstr("ids.txt:2: class 2, but there are 2 lines"));
  EXPECT_THAT(refused_labels("0 a\n1 b\n0 c\n"), HasSubstr("ids.txt:3: class 0 is named twice, first 'a'"));
  EXPECT_THAT(refused_labels("0 a\n1 \n"), HasSubstr("ids.txt:2: class 1 has no name"));
  EXPECT_THROW(read_labels("/nowhere/ids.txt"), UsageError);
}

}  // namespace
}  // namespace trireme::preprocess
