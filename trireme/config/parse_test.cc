#include "trireme/config/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/config/test_text.h"
#include "trireme/config/write.h"

namespace trireme::config {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string refused_text(const std::string& text) {
  return refusal([&] { parse_yaml(text, "a.yaml"); });
}

std::string read(const std::string& text) {
  return write_yaml(*parse_yaml(text, "a.yaml"));
}

TEST(ParseYaml, NamesTheLineOfASyntaxError) {
  EXPECT_THAT(refused_text("a: 1\nb: [1, 2\nc: 3\n"), StartsWith("a.yaml:"));
  EXPECT_EQ(refused_text("a: 1\nb: 'open\nc: 2\n"),
            "a.yaml:4: not valid YAML: the text ends within quotes or brackets");
  EXPECT_THAT(refused_text("b: \"open"), HasSubstr("ends within quotes"));
  EXPECT_THAT(refused_text("a: *nobody\n"), StartsWith("a.yaml:1: not valid YAML"));
}

TEST(ParseYaml, RefusesAKeyGivenTwice) {
  EXPECT_EQ(refused_text("g:\n  a: 1\n  b: 2\n  a: 3\n"), "a.yaml:4: g: 'a' is given twice; first at a.yaml:2");
}

TEST(ParseYaml, RefusesKeysThatAreNoText) {
  EXPECT_EQ(refused_text("? [1, 2]\n: 3\n"), "a.yaml:1: a list of 2 cannot be a key");
  EXPECT_EQ(refused_text("~: 3\n"), "a.yaml:1: nothing cannot be a key");
  EXPECT_THAT(refused_text("? " + std::string(300, 'k') + "\n: 1\n"), HasSubstr("a key of 300 bytes; at most 200"));
}

TEST(ParseYaml, RefusesDeepNesting) {
  EXPECT_THAT(refused_text(std::string(100000, '[')), HasSubstr("nested more than 50 deep"));
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "- ";
  EXPECT_THAT(refused_text(text + "1"), HasSubstr("nested more than 50 deep"));
  text = "a";
  for (int i = 0; i < 60; ++i) text = "{k: " + text + "}";
  EXPECT_THAT(refused_text(text), HasSubstr("nested more than 50 deep"));
}

TEST(ParseYaml, RefusesAliasesThatMultiply) {
  std::string text = "l0: &l0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 10; ++i) {
    const std::string below = "*l" + std::to_string(i - 1);
    text += "l" + std::to_string(i) + ": &l" + std::to_string(i) + " [" + below;
    for (int j = 1; j < 10; ++j) text += ", " + below;
    text += "]\n";
  }
  EXPECT_THAT(refused_text(text), HasSubstr("more than 200000 values"));
}

TEST(ParseYaml, RefusesALongTextAliasedOften) {
  std::string text = "l: &l " + std::string(500'000, 'x') + "\nm: [";
  for (int i = 0; i < 50; ++i) text += "*l, ";
  EXPECT_THAT(refused_text(text + "*l]\n"), HasSubstr("more than 200000 values"));
}

TEST(ParseYaml, RefusesAliasesThatDeepen) {
  std::string text = "a0: &a0 [x]\n";
  for (int i = 1; i < 60; ++i)
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + std::to_string(i - 1) + "]\n";
  EXPECT_THAT(refused_text(text), HasSubstr("nested more than 50 deep"));
}

TEST(ParseYaml, RefusesAnAliasOfItself) {
  EXPECT_EQ(refused_text("a: &a\n  b: *a\n"), "a.yaml:2: a.b: the alias refers to the section it stands in");
}

TEST(ParseYaml, RefusesWhatIsNoText) {
  EXPECT_EQ(refused_text("a: 1\nb: \x04 2\n"), "a.yaml:2: unexpected byte \\x04: not a text file");
  EXPECT_THAT(refused_text(std::string("a\0b", 3)), HasSubstr("\\x00"));
  EXPECT_THAT(refused_text(std::string(2 << 20, 'x')), HasSubstr("2097152 bytes; a configuration has at most 1048576"));
  EXPECT_THAT(refused_text("a: 1\n---\nb: 2\n"), HasSubstr("second document"));
}

TEST(ParseYaml, CopiesAliases) {
  const ValuePtr root = parse_yaml("a: &a {x: 1}\nb: *a\n", "a.yaml");
  root->find("b")->find("x")->text = "2";
  EXPECT_EQ(root->find("a")->find("x")->text, "1");
  EXPECT_EQ(root->find("b")->origin.line, 2);
}

TEST(ParseYaml, MergesSections) {
  EXPECT_EQ(read("a: &a {x: 1, y: 1}\nb:\n  <<: *a\n  x: 2\n"), "a:\n  x: 1\n  y: 1\nb:\n  x: 2\n  y: 1\n");
  EXPECT_EQ(read("a: &a {x: 1}\nb: &b {x: 2, y: 2}\nc: {<<: [*a, *b]}\n"),
            "a:\n  x: 1\nb:\n  x: 2\n  y: 2\nc:\n  x: 1\n  y: 2\n");
  EXPECT_EQ(read("b: {'<<': 1}\n"), "b:\n  \"<<\": 1\n");
  EXPECT_EQ(refused_text("b: {<<: 1}\n"), "a.yaml:1: b.<<: expected sections to merge, got '1'");
}

TEST(ParseYaml, KnowsTheWordsForNothing) {
  EXPECT_EQ(read("[~, null, None, '', 'None', !!str null, none]"),
            "[null, null, null, \"\", \"None\", \"null\", none]\n");
}

TEST(ParseYaml, GivesAValueTheLineOfItsKey) {
  const ValuePtr root = parse_yaml("a:\n\n  b: 1\n  c:\n  d: |\n    text\n", "a.yaml");
  EXPECT_EQ(root->find("a")->origin.line, 1);
  EXPECT_EQ(root->find("a")->find("b")->origin.line, 3);
  EXPECT_EQ(root->find("a")->find("c")->origin.text(), "a.yaml:4");
  EXPECT_EQ(root->find("a")->find("d")->origin.line, 5);
}

}  // namespace
}  // namespace trireme::config
