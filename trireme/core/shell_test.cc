#include "trireme/core/shell.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

using Words = std::vector<std::string>;

TEST(ShellWords, SplitsAsAShellDoes) {
  EXPECT_EQ(split_words("  a\tb  c "), (Words{"a", "b", "c"}));
  EXPECT_EQ(split_words("sh -c 'exit 7; echo \"x\"'"), (Words{"sh", "-c", "exit 7; echo \"x\""}));
  EXPECT_EQ(split_words(R"(a"b c"d "e\"f\\g\h" x\ y '')"), (Words{"ab cd", R"(e"f\g\h)", "x y", ""}));
  EXPECT_EQ(split_words(""), Words{});
}

TEST(ShellWords, AnOpenQuoteIsNothing) {
  for (const char* text : {"'", "a 'b", "\"a", "a\\", "\"\\\""}) EXPECT_FALSE(split_words(text)) << text;
}

TEST(ShellWords, WhatIsShownReadsTheSame) {
  const Words words{"trireme", "-o", "A.b=[1, 2]", "it's", "", "$HOME", "a|b", "ip1,ip2;0", "--x=./y:z"};
  EXPECT_EQ(split_words(show_words(words)), words);
  EXPECT_EQ(show_words({"trireme", "-o", "A.b=./c,d:2"}), "trireme -o A.b=./c,d:2");
  EXPECT_EQ(show_words({"it's", "'", "", "a^b"}), "'it'\\''s' ''\\''' '' 'a^b'");
}

}  // namespace
}  // namespace trireme
