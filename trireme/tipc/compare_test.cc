#include "trireme/tipc/compare.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::tipc {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kLog =
    "Env Info: …\n"
    "images/a.jpg:\tclass id(s): [8, 7, 86], score(s): [0.91, 0.05, 0.01], label_name(s): ['hen', 'cock [x]', 'p']\n"
    "[2026/11/15 13:06:26] trireme INFO: images/b.jpg:\tclass id(s): [1], score(s): [1.0], label_name(s): []\n";

TEST(Compare, ReadsBothForms) {
  const Answers answers = parse_answers(kLog);
  ASSERT_EQ(answers.size(), 2u);
  ASSERT_EQ(answers.at("a.jpg").size(), 6u);
  EXPECT_TRUE(answers.at("a.jpg")[2].exact);
  EXPECT_DOUBLE_EQ(answers.at("a.jpg")[3].value, 0.91);
  EXPECT_EQ(parse_answers("x\t[[1, 2], [3.5]]\n").at("x").size(), 3u);
  EXPECT_THAT(parse_answers("no tab\nx\tno numbers\ny\t{}\n\t\n"), IsEmpty());
}

TEST(Compare, WithinTheTolerances) {
  const Answers expected = parse_answers("a.jpg\t{\"scores\": [0.9101, 0.05, 0.01], \"class_ids\": [8, 7, 86]}\n");
  EXPECT_THAT(differences(expected, parse_answers(kLog), {}), IsEmpty());
  EXPECT_THAT(differences(expected, parse_answers(kLog), {.atol = 1e-6, .rtol = 1e-6}),
              ElementsAre(HasSubstr("a.jpg: number 4 is 0.91, expected 0.9101")));
}

TEST(Compare, OnlyIdsAreExact) {
  for (const char* name : {"id", "ids", "class_id", "class_ids", "class id(s)"})
    EXPECT_TRUE(parse_answers(fmt::format("a\t{{\"{}\": [3]}}", name)).at("a")[0].exact) << name;
  for (const char* name : {"confidence", "width", "idle", "grid", "_ids_per_second"})
    EXPECT_FALSE(parse_answers(fmt::format("a\t{{\"{}\": [3]}}", name)).at("a")[0].exact) << name;
}

TEST(Compare, WhatIsWrong) {
  const Answers log = parse_answers(kLog);
  EXPECT_THAT(differences(parse_answers("c.jpg\t[1]"), log, {}), ElementsAre("c.jpg: no answer"));
  EXPECT_THAT(differences(parse_answers("b.jpg\t[1, 1, 1]"), log, {}),
              ElementsAre(HasSubstr("3 numbers expected, 2 found")));
  EXPECT_THAT(differences(parse_answers("b.jpg\t{\"class_ids\": [2], \"scores\": [1]}"), log, {.atol = 5, .rtol = 5}),
              ElementsAre(HasSubstr("class id")));
  EXPECT_THAT(differences(parse_answers("b.jpg\t[1, 1]"), parse_answers("b.jpg\t[1, 1e400]"), {}), testing::SizeIs(1));
}

TEST(Compare, PrecisionOfAFile) {
  EXPECT_EQ(precision_in_name("fp16/gt_fp32.txt"), "fp32");
  EXPECT_EQ(precision_in_name("fp16/gt.txt"), "");
}

}  // namespace
}  // namespace trireme::tipc
