#include "trireme/config/node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/config/test_text.h"

namespace trireme::config {
namespace {

using ::testing::ElementsAre;

template <typename T>
std::string refused_value(const std::string& text, const std::string& key = "k") {
  return refusal([&] { read_text(text).need<T>(key); });
}

TEST(Node, NamesFileLinePathAndValueOfAWrongType) {
  const Node root = read_text("Optimizer:\n  lr:\n    learning_rate: fast\n");
  EXPECT_EQ(refusal([&] { root.section("Optimizer").section("lr").need<double>("learning_rate"); }),
            "test.yaml:3: Optimizer.lr.learning_rate: expected a number, got 'fast'");
  EXPECT_EQ(refused_value<int64_t>("k: 1.5"), "test.yaml:1: k: expected a whole number, got '1.5'");
  EXPECT_EQ(refused_value<int64_t>("k: [1]"), "test.yaml:1: k: expected a whole number, got a list of 1");
  EXPECT_EQ(refused_value<int64_t>("k: 1e19"), "test.yaml:1: k: expected a whole number, got '1e19'");
  EXPECT_EQ(refused_value<int>("k: 3000000000"), "test.yaml:1: k: 3000000000 is out of range");
  EXPECT_EQ(refused_value<bool>("k: 1"), "test.yaml:1: k: expected True or False, got '1'");
  EXPECT_EQ(refused_value<bool>("k: 'True'"), "test.yaml:1: k: expected True or False, got 'True'");
  EXPECT_EQ(refused_value<std::string>("k: {a: 1}"), "test.yaml:1: k: expected a text, got a section");
  EXPECT_EQ(refused_value<std::vector<int>>("k: 3"), "test.yaml:1: k: expected a list, got '3'");
  EXPECT_EQ(refused_value<std::vector<int>>("k:\n  - 3\n  - x"), "test.yaml:3: k.1: expected a whole number, got 'x'");
}

TEST(Node, NamesTheSectionOfAMissingKey) {
  const Node arch = read_text("Global: {}\nArch:\n  class_num: 10\n  name:\n").section("Arch");
  EXPECT_EQ(refusal([&] { arch.need<std::string>("pretrained"); }),
            "test.yaml:2: Arch.pretrained: missing; write it there");
  EXPECT_EQ(refusal([&] { arch.need<std::string>("name"); }), "test.yaml:4: Arch.name: empty; write it there");
  EXPECT_EQ(refusal([&] { read_text("a: 1").need_section("Arch"); }), "test.yaml:1: Arch: missing; write it there");
}

TEST(Node, AMissingKeyMayBeASlip) {
  const Node root = read_text("Global: {}\nOptimiser: {nam: SGD}\n");
  EXPECT_EQ(refusal([&] { root.need_section("Optimizer"); }),
            "test.yaml:1: Optimizer: missing; is 'Optimiser' (test.yaml:2) a slip?; write it there");
  EXPECT_THAT(refusal([&] { root.section("Optimiser").need<std::string>("name"); }),
              testing::HasSubstr("is 'nam' (test.yaml:2)"));
  root.section("Globl");
  EXPECT_EQ(root.slip_of("Arch"), "");
  EXPECT_THAT(root.slip_of("Globals"), testing::HasSubstr("'Global'"));
  root.section("Global");
  EXPECT_EQ(root.slip_of("Globals"), "");  // known: no slip
}

TEST(Node, KnowsWhatCameByAnOption) {
  const CaughtLog quiet;
  const Node root = parse_document("a: {b: 1, c: 2}", "test.yaml", {"a.b=3", "d={e: 4}"});
  EXPECT_TRUE(root.section("a").at("b").is_option());
  EXPECT_FALSE(root.section("a").at("c").is_option());
  EXPECT_TRUE(root.section("d").at("e").is_option());
}

TEST(Node, RefusesASectionThatIsNone) {
  const Node root = read_text("a: 3\nb: [1]\n");
  EXPECT_EQ(refusal([&] { root.section("a"); }), "test.yaml:1: a: expected a section of keys, got '3'");
  EXPECT_EQ(refusal([&] { root.at("a").at("b"); }), "test.yaml:1: a: expected a section with 'b', got '3'");
  EXPECT_EQ(refusal([&] { root.at("a").items(); }), "test.yaml:1: a: expected a list, got '3'");
  EXPECT_EQ(refusal([&] { root.at("b").entries(); }), "test.yaml:2: b: expected a section of keys, got a list of 1");
}

TEST(Node, ShowsALongTextInPart) {
  EXPECT_EQ(refused_value<int>("k: " + std::string(200, 'x')),
            "test.yaml:1: k: expected a whole number, got '" + std::string(60, 'x') + "…'");
}

TEST(Node, ReadsPythonsWords) {
  const Node root = read_text("a: True\nb: False\nc: None\nd: 'False'\ne: off\n");
  EXPECT_TRUE(root.need<bool>("a"));
  EXPECT_FALSE(root.get("b", true));
  EXPECT_TRUE(root.get("c", true));
  EXPECT_FALSE(root.has("c"));
  EXPECT_TRUE(root.at("a").is_bool());
  EXPECT_FALSE(root.at("d").is_bool());
  EXPECT_EQ(root.need<std::string>("d"), "False");
  EXPECT_FALSE(root.need<bool>("e"));
}

TEST(Node, ReadsNumbersWrittenAsText) {
  const Node root = read_text("a: 1.0/255.0\nb: 1e-4\nc: '0.00001'\nd: 2*64\ne: 9007199254740993\nf: 1e3\n");
  EXPECT_EQ(root.need<double>("a"), 1.0 / 255.0);
  EXPECT_EQ(root.need<double>("b"), 1e-4);
  EXPECT_EQ(root.need<double>("c"), 1e-5);
  EXPECT_EQ(root.need<int>("d"), 128);
  EXPECT_EQ(root.need<int64_t>("e"), 9007199254740993);
  EXPECT_EQ(root.need<int64_t>("f"), 1000);
}

TEST(Node, ReadsListsAndSections) {
  const Node root = read_text("a: [1, 2.5]\nb: 5\nc: {x: 1, y: [s]}\nd: []\n");
  EXPECT_THAT(root.need<std::vector<double>>("a"), ElementsAre(1, 2.5));
  EXPECT_THAT(*root.find_list_or_one<int>("b"), ElementsAre(5));
  EXPECT_FALSE(root.find_list_or_one<int>("z"));
  EXPECT_EQ(root.find<int>("b"), 5);
  EXPECT_EQ(root.find<int>("z"), std::nullopt);
  EXPECT_THAT(root.get("d", std::vector<int>{7}), ElementsAre());
  const auto entries = root.section("c").entries();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[1].first, "y");
  EXPECT_EQ(entries[1].second.items()[0].path(), "c.y.0");
}

TEST(Node, AnAbsentSectionHasDefaultsOnly) {
  const Node section = read_text("a: 1").section("EMA");
  EXPECT_TRUE(section.is_null());
  EXPECT_EQ(section.get("decay", 0.5), 0.5);
  EXPECT_TRUE(section.entries().empty());
  EXPECT_EQ(section.section("deeper").get<std::string>("x", "y"), "y");
}

}  // namespace
}  // namespace trireme::config
