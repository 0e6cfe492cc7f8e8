#include "trireme/core/manual.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/core/option_help.h"
#include "trireme/core/version.h"

namespace trireme {
namespace {

using testing::HasSubstr;

CommandSyntax row() {
  const auto nothing = [](const Given&) {};
  return {.command = "boat row",
          .usage = "[options]",
          .about = "Rows a boat\nfrom here to there. It takes a while.\n",
          .notes = "example\n  boat row --port-side 1\n.boatrc is read first\n",
          .options = {{{"--port-side", "-p"}, "N", "a `side', written \\p", nothing}}};
}

TEST(Manual, IsMadeFromTheTable) {
  EXPECT_EQ(help_for(row(), kManual), std::string(".TH \"BOAT-ROW\" 1 \"\" \"Trireme ") + kVersion +
                                          "\"\n.nh\n"
                                          ".SH \"NAME\"\nboat\\-row \\- Rows a boat from here to there\n"
                                          ".SH \"SYNOPSIS\"\n.nf\nboat row [options]\n.fi\n"
                                          ".SH \"DESCRIPTION\"\n.nf\nRows a boat\nfrom here to there. It takes a "
                                          "while.\n.fi\n"
                                          ".SH \"OPTIONS\"\n"
                                          ".TP\n\\fB\\-\\-port\\-side\\fR, \\fB\\-p\\fR \\fIN\\fR\n"
                                          "a \\(gaside\\(aq, written \\ep\n"
                                          ".TP\n\\fB\\-\\-help\\fR, \\fB\\-h\\fR\nprint this text\n"
                                          ".SH \"NOTES\"\n.nf\nexample\n  boat row \\-\\-port\\-side 1\n"
                                          "\\&.boatrc is read first\n.fi\n");
}

TEST(Manual, HelpTakesItAsATopic) {
  EXPECT_EQ(parse_command_line(row(), {"--help", "--man"}).help, kManual);
}

}  // namespace
}  // namespace trireme
