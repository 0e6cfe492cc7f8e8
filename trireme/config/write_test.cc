#include "trireme/config/write.h"

#include <gtest/gtest.h>

#include "trireme/config/parse.h"

namespace trireme::config {
namespace {

std::string again(const std::string& text) {
  return write_yaml(*parse_yaml(text, "a.yaml"));
}

TEST(WriteYaml, KeepsTheFormOfAConfiguration) {
  const std::string text =
      "Global:\n"
      "  epochs: 120\n"
      "  checkpoints: null\n"
      "  image_shape: [3, 224, 224]\n"
      "  seed: -3\n"
      "ops:\n"
      "  - DecodeImage:\n"
      "      to_rgb: True\n"
      "      order: \"\"\n"
      "  - ToCHWImage: null\n"
      "  - [a, b]\n"
      "  - - [1]\n"
      "    - x: 1\n"
      "      y: {}\n"
      "  - []\n"
      "path: ./dataset/ILSVRC2012/\n";
  EXPECT_EQ(again(text), text);
}

TEST(WriteYaml, ReadsTheSameAgain) {
  for (const char* text : {"a: 'True'",    "a: \"x: y # z\"",
                           "a: 'it''s'",   "a: |\n  one\n   two\n",
                           "'a: b': c",    "a: '-'",
                           "a: '- x'",     "a: '*x'",
                           "a: '&x'",      "a: '[1]'",
                           "a: '{}'",      "a: '%x'",
                           "a: '\"'",      "a: \"\\x01\\t\\\\\"",
                           "a: ...",       "a: ---x",
                           "a: 1.0/255.0", "a: (1 + 2)",
                           "a: 'null'",    "'null': 1",
                           "a: ' x '",     "a: äöü €",
                           "'<<': 1",      "a: 'a\n\n b'",
                           "[]",           "x"}) {
    const std::string once = again(text);
    EXPECT_EQ(again(once), once) << text;
  }
}

TEST(WriteYaml, KeepsTexts) {
  const ValuePtr root = parse_yaml(again("a: \"two\\nlines\\x01 \\\"q\\\" \\\\\"\nb: 'True'\nc: True\n"), "a.yaml");
  EXPECT_EQ(root->find("a")->text, "two\nlines\x01 \"q\" \\");
  EXPECT_TRUE(root->find("b")->quoted);
  EXPECT_FALSE(root->find("c")->quoted);
}

}  // namespace
}  // namespace trireme::config
