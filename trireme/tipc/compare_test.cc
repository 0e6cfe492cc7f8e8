#include "trireme/tipc/compare.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace trireme::tipc {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kLog =
    "$ trireme infer --image 'a\tb'\n"
    "images/a.jpg:\tclass id(s): [8, 7, 86], score(s): [0.91, 0.05, 0.01], label_name(s): ['hen', 'cock [x]', 'p']\n"
    "[2026/11/15 13:06:26] trireme INFO: images/b.jpg:\tclass id(s): [1], score(s): [1.0], label_name(s): []\n";

AnswerFile log(const std::string& text = kLog) {
  return parse_answers(text, "log");
}

Comparison against(const std::string& expected, const AnswerFile& found, const Tolerance& tolerance = {}) {
  return compare(parse_answers(expected, "gt"), found, tolerance);
}

TEST(Answers, BothForms) {
  const AnswerFile file = log();
  EXPECT_THAT(file.problems, IsEmpty());
  ASSERT_EQ(file.answers.size(), 2u);
  const Answer& first = file.answers.at("images/a.jpg");
  ASSERT_EQ(first.numbers.size(), 6u);
  EXPECT_EQ(first.line, 2u);
  EXPECT_TRUE(first.numbers[2].exact);
  EXPECT_DOUBLE_EQ(first.numbers[3].value, 0.91);
  EXPECT_EQ(log("x\t[[1, 2], [3.5]]\n").answers.at("x").numbers.size(), 3u);
  EXPECT_EQ(log("x\t{\"ids\": [1], \"label_names\": [\"hen\"]}").answers.at("x").numbers.size(), 1u);
  EXPECT_THAT(log("no tab\n\tat the front\n").answers, IsEmpty());
}

TEST(Answers, ALineThatSaysSomethingElseIsAProblem) {
  for (const char* text :
       {"no numbers", "{}", "[]", "[0.5, NaN]", "[0.5, \"1\"]", "[1e400]", "{\"scores\": [null]}", "[0.5] extra",
        "class id(s): [1], score(s): [nan], label_name(s): []", "class id(s): [1, 2], score(s): [0.5]",
        "class id(s): [1], score(s): [0.5] extra, label_name(s): []", "class id(s): [1], label_name(s): []",
        "class id(s): [1], score(s): [0.5], label_name(s): [] extra", "class id(s): [1], score(s): [0.5", ""}) {
    const AnswerFile file = log(fmt::format("\na.jpg\t{}\n", text));
    EXPECT_THAT(file.problems, ElementsAre(HasSubstr("log:2: a.jpg: "))) << text;
    EXPECT_THAT(file.answers, IsEmpty()) << text;
  }
}

TEST(Answers, ABottomlessListIsAProblem) {
  EXPECT_THAT(log("a\t" + std::string(1'000'000, '[') + std::string(1'000'000, ']')).problems, testing::SizeIs(1));
}

TEST(Answers, TheSecondForAPictureIsAProblem) {
  EXPECT_THAT(log("x/a\t[1]\nb\t[1]\nx/a:\t[1]\n").problems,
              ElementsAre("log:3: x/a: line 1 has an answer for it already"));
}

TEST(Answers, JsonLines) {
  const AnswerFile file =
      log("{\"image\":\"images/a\\tb.jpg\",\"class_ids\":[8,7],\"scores\":[0.5,0.25],\"label_names\":[\"hen\"]}\n"
          "{\"image\":\"b.jpg\",\"error\":\"damaged\"}\n"
          "{\"image\":\"c.jpg\",\"class_ids\":[8");
  ASSERT_TRUE(file.answers.contains("images/a\tb.jpg"));
  const Answer& answer = file.answers.at("images/a\tb.jpg");
  ASSERT_EQ(answer.numbers.size(), 4u);
  EXPECT_TRUE(answer.numbers[0].exact);
  EXPECT_DOUBLE_EQ(answer.numbers[2].value, 0.5);
  EXPECT_THAT(file.problems, ElementsAre(HasSubstr("log:2: b.jpg: "), HasSubstr("log:3: not a whole line of JSON")));
  EXPECT_EQ(file.answers.size(), 1u);
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  EXPECT_THAT(log("{\"image\":\"a\",\"scores\":" + deep + "}").problems, testing::SizeIs(1));
}

TEST(Answers, OnlyIdsAreExact) {
  for (const char* name : {"id", "ids", "class_id", "class_ids", "class id(s)"})
    EXPECT_TRUE(log(fmt::format("a\t{{\"{}\": [3]}}", name)).answers.at("a").numbers[0].exact) << name;
  for (const char* name : {"confidence", "width", "idle", "grid", "_ids_per_second"})
    EXPECT_FALSE(log(fmt::format("a\t{{\"{}\": [3]}}", name)).answers.at("a").numbers[0].exact) << name;
}

TEST(Compare, WithinTheTolerances) {
  const char* expected =
      "a.jpg\t{\"scores\": [0.9101, 0.05, 0.01], \"class_ids\": [8, 7, 86]}\n"
      "b.jpg\t{\"scores\": [1], \"class_ids\": [1]}\n";
  const Comparison same = against(expected, log());
  EXPECT_TRUE(same.same()) << testing::PrintToString(same.wrong);
  EXPECT_EQ(same.pictures, 2u);
  EXPECT_EQ(same.numbers, 8u);
  const Comparison fine = against(expected, log(), {.atol = 1e-6, .rtol = 1e-6});
  EXPECT_FALSE(fine.same());
  EXPECT_THAT(fine.wrong, ElementsAre(HasSubstr("log:2: a.jpg: number 4 is 0.91, expected 0.9101")));
}

TEST(Compare, SmallScoresAreComparedBySize) {
  const auto same = [](const char* expected, const char* found, const Tolerance& tolerance = {}) {
    return against(std::string("a\t") + expected, log(std::string("a\t") + found), tolerance).same();
  };
  EXPECT_FALSE(same("[0.98, 0.001000]", "[0.98, 0.001990]")) << "off by 99 %";
  EXPECT_FALSE(same("[0.98, 0.001000]", "[0.98, 0.000010]"));
  EXPECT_FALSE(same("[0.98, 0.001]", "[0.98, 0.002]"));
  EXPECT_TRUE(same("[0.98, 0.001000]", "[0.98, 0.001010]")) << "off by 1 %";
  EXPECT_TRUE(same("[0.98, 0.000001]", "[0.98, 0.0000014]")) << "within half of the last digit";
  EXPECT_TRUE(same("[0.0]", "[1e-9]")) << "what a float cannot tell from nothing";
  EXPECT_TRUE(same("[0.500]", "[0.501]")) << "from 0.1 on as Paddle has it";
  EXPECT_FALSE(same("[0.5000]", "[0.5016]"));
  EXPECT_TRUE(same("[0.001000]", "[0.001400]", {.atol = 0.05})) << "who asks for more gets it";
  EXPECT_FALSE(same("[0.001000]", "[0.001010]", {.atol = 0}));
}

TEST(Compare, NothingIsAllowedThatPaddleRefuses) {
  for (const double atol : {0.0, 1e-5, 1e-3, 0.2})
    for (const double expected : {0.0, 1e-6, 0.001, -0.05, 0.1, 1.0, -300.0})
      for (const double rounding : {1e-7, 5e-3, 0.5}) {
        const Tolerance tolerance{.atol = atol, .rtol = 1e-3};
        EXPECT_LE(tolerance.allowed(expected, rounding), atol + 1e-3 * std::abs(expected));
      }
}

TEST(Compare, WhatIsWrong) {
  const AnswerFile found = log("b.jpg\tclass id(s): [1], score(s): [1.0], label_name(s): []\n");
  EXPECT_THAT(against("b.jpg\t[1, 1, 1]", found).wrong, ElementsAre(HasSubstr("3 numbers expected, 2 found")));
  EXPECT_THAT(against("b.jpg\t{\"class_ids\": [2], \"scores\": [1]}", found, {.atol = 5, .rtol = 5}).wrong,
              ElementsAre(HasSubstr("class id")));
  EXPECT_THAT(against("b.jpg\t[1, 1]\nc.jpg\t[1]\n", found).wrong, ElementsAre("gt:2: c.jpg: no answer for it in log"));
  EXPECT_THAT(against("b.jpg\t[1, 1]\n", log("b.jpg\t[1, 1]\nd.jpg\t[1]\n")).wrong,
              ElementsAre("log:2: d.jpg: no answer for it in gt"));
  EXPECT_THAT(against("b.jpg\t[1, 1]\nb.jpg\t[1, 1]\n", log("b.jpg\t[1, 1]\nb.jpg\t[1, NaN]\n")).wrong,
              ElementsAre(HasSubstr("gt:2: b.jpg: "), HasSubstr("log:2: b.jpg: ")));
}

TEST(Compare, WholeNumbersOfListsAreExact) {
  EXPECT_THAT(against("a\t[998]", log("a\t[999]")).wrong,
              ElementsAre(HasSubstr("number 1 (a whole number) is 999, expected 998")));
  EXPECT_TRUE(against("a\t[998, 0.5]", log("a\t[998, 0.5001]")).same());
  EXPECT_TRUE(against("a\t[1998.0]", log("a\t[1999]")).same()) << "a score that was printed without digits";
  EXPECT_TRUE(against("a\t{\"scores\": [1998]}", log("a\t{\"scores\": [1999]}")).same());
}

TEST(Compare, PicturesGoByTheirPathsWhereNamesRepeat) {
  const char* recursive = "x/a/1.png:\t[0.25]\nx/b/1.png:\t[0.75]\n";
  EXPECT_TRUE(against(recursive, log(recursive)).same());
  EXPECT_THAT(against(recursive, log("x/a/1.png:\t[0.75]\nx/b/1.png:\t[0.25]\n")).wrong,
              ElementsAre(HasSubstr("log:1: x/a/1.png: number 1"), HasSubstr("log:2: x/b/1.png: number 1")));
  EXPECT_THAT(against(recursive, log("x/a/1.png:\t[0.25]\n")).wrong,
              ElementsAre("gt:2: x/b/1.png: no answer for it in log"));
  EXPECT_TRUE(against("x/1.png\t[0.25]\nx/2.png\t[0.75]", log("2.png\t[0.75]\n1.png\t[0.25]")).same());
}

TEST(Compare, NothingComparedIsNotTheSame) {
  EXPECT_FALSE(against("", log("")).same());
  EXPECT_FALSE(against("x\t[1]", log("y\t[1]")).same());
}

TEST(Compare, RoundingIsTold) {
  EXPECT_THAT(rounding_note(log(), {}), AllOf(HasSubstr("log: its numbers have 2 digits"), HasSubstr("up to 0.005"),
                                              HasSubstr("--atol is 0.001"), HasSubstr("--score-digits 6")));
  EXPECT_EQ(rounding_note(log(), {.atol = 0.005}), "");
  const AnswerFile sorted =
      log(R"(a	{"class_ids": [7], "label_names": ["a \"3.14159\" score", "b.123"], "scores": [0.91]})");
  EXPECT_THAT(rounding_note(sorted, {}), HasSubstr("log: its numbers have 2 digits"));
  EXPECT_EQ(rounding_note(log("a\t[0.123456]\nb\t[1.0]\n"), {}), "");
  EXPECT_EQ(rounding_note(log("a\t[1.5e-7]\n"), {.atol = 1e-9}), "");
  EXPECT_EQ(rounding_note(log("a\t[1, 2]\n"), {}), "") << "whole numbers need no digits";
}

TEST(Compare, PicturesThatCannotBeToldApartAreTold) {
  EXPECT_THAT(sameness_note(log("a\t[0.001010]\nb\t[0.001012]\n"), {}), HasSubstr("log: all 2 pictures have the same"));
  EXPECT_EQ(sameness_note(log("a\t[0.001010]\nb\t[0.001112]\n"), {}), "");
  EXPECT_EQ(sameness_note(log("a\t[0.001010]\nb\t[0.001012]\n"), {.atol = 0, .rtol = 1e-4}), "");
  EXPECT_EQ(sameness_note(log("a\t[1]\n"), {}), "") << "one picture cannot be mixed up";
  EXPECT_EQ(sameness_note(log(), {}), "");
}

TEST(Compare, PrecisionOfAFile) {
  EXPECT_EQ(precision_in_name("fp16/gt_fp32.txt"), "fp32");
  EXPECT_EQ(precision_in_name("fp16/gt.txt"), "");
}

}  // namespace
}  // namespace trireme::tipc
