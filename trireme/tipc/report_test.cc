#include "trireme/tipc/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::tipc {
namespace {

using Kind = Result::Kind;
using testing::HasSubstr;

const std::vector<Step>& steps() {
  static const std::vector<Step> all = {
      {.kind = StepKind::train, .group = "g", .name = "train", .command = {"a", "<b>"}, .log = "g/train.log"},
      {.kind = StepKind::infer, .group = "g", .name = "infer cpu", .command = {"c"}, .log = "g/infer.log"}};
  return all;
}

TEST(Report, StatusLines) {
  EXPECT_EQ(status_line(steps()[1], {.kind = Kind::passed}), "Run successfully with command - c!");
  EXPECT_EQ(results_line("tiny", steps()[1], {.kind = Kind::passed}),
            "Run successfully with command - tiny - c - g/infer.log!");
  EXPECT_EQ(status_line(steps()[0], {.kind = Kind::failed, .reason = "exit 1"}), "Run failed with command - a '<b>'!");
  EXPECT_EQ(status_line(steps()[1], {.kind = Kind::skipped, .reason = "trainer 0 saves"}),
            "Run skipped (trainer 0 saves) with command - c!");
}

TEST(Report, Summary) {
  const std::string text = summary(
      steps(), {{.kind = Kind::failed, .reason = "exit 7", .seconds = 1.25}, {.kind = Kind::skipped, .reason = "x"}});
  EXPECT_EQ(text,
            "g\n"
            "  train           1.2 s  failed (exit 7)\n"
            "  infer cpu       0.0 s  skipped (x)\n"
            "2 steps: 0 passed, 1 failed, 1 skipped\n");
  EXPECT_THAT(summary(steps(), {{}, {}}), HasSubstr("0 failed, 0 skipped, 2 not run\n"));
}

TEST(Report, JUnit) {
  const std::string text = junit_xml("tiny.lite", steps(),
                                     {{.kind = Kind::failed, .reason = "a \"b\" & c", .last_lines = {"<x>\x01"}},
                                      {.kind = Kind::skipped, .reason = "y"}});
  EXPECT_THAT(text, HasSubstr("tests=\"2\" failures=\"1\" errors=\"0\" skipped=\"1\""));
  EXPECT_THAT(text,
              HasSubstr("<failure message=\"a &quot;b&quot; &amp; c\">a '&lt;b&gt;'\n&lt;x&gt;\\x01\n</failure>"));
  EXPECT_THAT(text, HasSubstr("<skipped message=\"y\"/>"));
}

}  // namespace
}  // namespace trireme::tipc
