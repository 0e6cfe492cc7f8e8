#include "trireme/launch/options/help.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/launch/options/option_table.h"

namespace trireme::launch {
namespace {

using testing::HasSubstr;

void expect_one_screen(const std::string& text) {
  const auto lines = split(text, '\n');
  EXPECT_LE(lines.size(), 41u) << text;  // the last part is empty: 40 lines
  for (const std::string& line : lines) {
    EXPECT_LE(line.size(), 100u) << line;
    EXPECT_FALSE(line.ends_with(' ')) << line;
  }
}

TEST(Help, OverviewFitsOneScreen) {
  const std::string text = launch_help("");
  expect_one_screen(text);
  EXPECT_THAT(text, testing::StartsWith("usage: trireme launch [options] PROGRAM [args]"));
  for (const std::string& topic : help_topics()) EXPECT_THAT(text, HasSubstr("  " + topic + " "));
  EXPECT_THAT(text, HasSubstr("examples:"));
}

TEST(Help, EveryTopicFitsOneScreen) {
  for (const std::string& topic : help_topics()) expect_one_screen(launch_help(topic));
}

TEST(Help, EveryOptionIsInSomeTopic) {
  for (const Option& option : option_table()) {
    if (option.topic == Topic::internal) continue;
    const auto shows = [&](const std::string& topic) {
      return launch_help(topic).find(option.names[0]) != std::string::npos;
    };
    EXPECT_GE(std::count_if(help_topics().begin(), help_topics().end(), shows), 1) << option.names[0];
  }
}

TEST(Help, AllIsEveryTopic) {
  const std::string all = launch_help("all");
  for (const std::string& topic : help_topics()) EXPECT_THAT(all, HasSubstr(launch_help(topic)));
}

TEST(Help, ThePageForManHasEveryOptionThatMayBeGiven) {
  const std::string page = launch_help(kManual);
  EXPECT_THAT(page, testing::StartsWith(".TH \"TRIREME-LAUNCH\" 1"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-hang_timeout\\fR \\fITIME\\fR\n"));
  for (const Option& option : option_table()) {
    if (option.topic == Topic::internal || option.support != Support::full) continue;
    std::string name = "\\fB";
    for (const char c : option.names[0]) name += c == '-' ? "\\-" : std::string(1, c);
    EXPECT_THAT(page, HasSubstr(name + "\\fR")) << option.names[0];
  }
}

TEST(Help, UnknownTopicsGetAHint) {
  EXPECT_THAT([] { launch_help("node"); }, testing::ThrowsMessage<UsageError>(HasSubstr("did you mean nodes?")));
  EXPECT_THAT([] { launch_help("./train"); }, testing::ThrowsMessage<UsageError>(HasSubstr("topics are processes")));
}

TEST(Help, MarkdownHasEveryNameAndVariable) {
  const std::string text = options_markdown();
  for (const Option& option : option_table()) {
    if (option.topic == Topic::internal) continue;
    for (const std::string& name : option.names) EXPECT_THAT(text, HasSubstr("`" + name + "`"));
    for (const std::string& name : option.variables) EXPECT_THAT(text, HasSubstr("`" + name + "`"));
  }
}

TEST(Help, MarkdownTablesHaveThreeColumns) {
  for (const std::string& line : split(options_markdown(), '\n')) {
    if (!line.starts_with("| ")) continue;
    size_t bars = 0;
    for (size_t i = 0; i < line.size(); ++i) bars += line[i] == '|' && (i == 0 || line[i - 1] != '\\');
    EXPECT_EQ(bars, 4u) << line;
  }
}

}  // namespace
}  // namespace trireme::launch
