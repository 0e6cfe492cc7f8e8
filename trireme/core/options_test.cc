#include "trireme/core/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/core/error.h"
#include "trireme/core/option_help.h"
#include "trireme/core/test_support.h"
#include "trireme/core/text.h"

namespace trireme {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;
using Words = std::vector<std::string>;

/// A command with one option of each kind, and what it was given.
struct Boat {
  std::string host, flag, gpu;
  Words sets, overrides;

  CommandSyntax syntax(Operands operands = Operands::refused) {
    const auto add_to = [](Words& words) { return [&words](const Given& given) { words.push_back(given.text); }; };
    const auto set = [](std::string& text) { return [&text](const Given& given) { text = given.text; }; };
    CommandSyntax syntax{
        .command = "boat row",
        .usage = "[options]",
        .about = "Rows.\n",
        .notes = "example\n  boat row --port-side 1\n",
        .operands = operands,
        .operand_advice = "",
        .options = {{{"--port-side", "-p", "--larboard"}, "N", "side|other side", set(host)},
                    {{"--dry_run"}, "", "start nothing", set(flag)},
                    {{"--use-gpu"}, "True|False", "(default: False)", set(gpu), Takes::boolean},
                    {{"--set"}, "K=V", "may be repeated", add_to(sets)},
                    {{"--override", "-o"}, "K=V...", "changes", add_to(overrides), Takes::assignments},
                    {{"--sail"}, "", "it is a rowing boat", [](const Given&) { throw UsageError("no sails"); }}}};
    syntax.options.back().support = Support::refused;
    return syntax;
  }
  CommandLine parse(const Words& words, Operands operands = Operands::refused) {
    return parse_command_line(syntax(operands), words);
  }
};

std::string refusal(const Words& words, Operands operands = Operands::refused) {
  return trireme::refusal([&] { Boat().parse(words, operands); });
}

TEST(CommandLine, AValueStandsBehindAnEqualsSignOrASpace) {
  for (const Words& words : {Words{"--port-side", "2"}, Words{"--port_side=2"}, Words{"-p", "2"}, Words{"-p=2"},
                             Words{"--larboard", "2"}, Words{"--port-side=1", "--larboard=2"}}) {
    Boat boat;
    boat.parse(words);
    EXPECT_EQ(boat.host, "2") << join(words, " ");
  }
}

TEST(CommandLine, AnOptionIsNotAValue) {
  EXPECT_EQ(refusal({"--port-side"}), "--port-side needs a value: --port-side N");
  EXPECT_EQ(refusal({"--port_side", "--"}), "--port_side needs a value: --port_side N");
  EXPECT_THAT(refusal({"--port-side", "--dry-run"}),
              AllOf(StartsWith("--port-side needs a value: --port-side N ("), HasSubstr("--port-side=--dry-run")));
  EXPECT_THAT(refusal({"--port-side", "--unheard-of=3"}), HasSubstr("--unheard-of is an option"));
  EXPECT_THAT(refusal({"--set", "-p", "3"}), HasSubstr("-p is an option"));
  Boat boat;
  boat.parse({"--port-side", "-1", "--set=--dry-run"});
  EXPECT_EQ(boat.host, "-1");
  EXPECT_THAT(boat.sets, ElementsAre("--dry-run"));
}

TEST(CommandLine, FlagsAndBooleans) {
  Boat boat;
  boat.parse({"--dry-run", "--use-gpu"});
  EXPECT_EQ(boat.flag + boat.gpu, "truetrue");
  boat.parse({"--dry_run=false", "--use-gpu", "perhaps"});
  EXPECT_EQ(boat.flag + boat.gpu, "falseperhaps");
}

TEST(CommandLine, ABooleanLeavesOtherWordsAlone) {
  Boat boat;
  EXPECT_THAT(boat.parse({"--use-gpu", "False", "x"}, Operands::anywhere).operands, ElementsAre("x"));
  EXPECT_EQ(boat.gpu, "False");
  EXPECT_THAT(boat.parse({"--use-gpu", "x"}, Operands::anywhere).operands, ElementsAre("x"));
  EXPECT_THAT(boat.parse({"--use-gpu", "true"}, Operands::program).operands, ElementsAre("true"));
}

TEST(CommandLine, SomeOptionsCollect) {
  Boat boat;
  boat.parse({"--set", "a", "--set=b", "-o", "c=1", "d=2", "-o=e=3", "--override", "f"});
  EXPECT_THAT(boat.sets, ElementsAre("a", "b"));
  EXPECT_THAT(boat.overrides, ElementsAre("c=1", "d=2", "e=3", "f"));
}

TEST(CommandLine, Operands) {
  EXPECT_EQ(refusal({"-p", "1", "x"}), "'x' belongs to no option (see: boat row --help)");
  EXPECT_EQ(refusal({"--", "-p"}), "'-p' belongs to no option (see: boat row --help)");
  EXPECT_THAT(Boat().parse({"a", "-p", "1", "-", "--", "-p"}, Operands::anywhere).operands,
              ElementsAre("a", "-", "-p"));
  EXPECT_THAT(Boat().parse({"-p", "1", "a", "-p", "--", "--help"}, Operands::program).operands,
              ElementsAre("a", "-p", "--", "--help"));
}

TEST(CommandLine, HelpEndsTheParsing) {
  EXPECT_FALSE(Boat().parse({}).help);
  EXPECT_EQ(Boat().parse({"-h", "--nonsense"}).help, "");
  EXPECT_EQ(Boat().parse({"-p", "1", "--help", "errors", "x"}).help, "errors");
  EXPECT_EQ(Boat().parse({"--help=errors"}).help, "errors");
  EXPECT_EQ(Boat().parse({"--help", "--"}).help, "");
  EXPECT_EQ(Boat().parse({"--help", "--markdown"}).help, kMarkdown);
  EXPECT_THAT(refusal({"--nonsense", "--help"}), StartsWith("unknown option --nonsense"));
}

TEST(CommandLine, HintsAreSpelledAsTyped) {
  EXPECT_EQ(refusal({"--port_sid=3"}), "unknown option --port_sid; did you mean --port_side? (see: boat row --help)");
  EXPECT_THAT(refusal({"--port-sid"}), HasSubstr("did you mean --port-side?"));
  EXPECT_THAT(refusal({"--dryrun"}), HasSubstr("did you mean --dry_run?"));
  EXPECT_THAT(refusal({"--larb"}), HasSubstr("did you mean --larboard?"));
  EXPECT_THAT(refusal({"-set"}), HasSubstr("did you mean --set?"));
  EXPECT_THAT(refusal({"-p4"}), HasSubstr("did you mean -p 4?"));
  EXPECT_THAT(refusal({"--hlep"}), HasSubstr("did you mean --help?"));
  EXPECT_EQ(refusal({"--sial"}), "unknown option --sial (see: boat row --help)") << "no hint at a refused option";
  EXPECT_EQ(refusal({"-z\x1b"}), "unknown option -z\\x1b (see: boat row --help)");
}

TEST(CommandLine, ARefusedOptionSaysWhy) {
  EXPECT_EQ(refusal({"--sail"}), "no sails");
}

TEST(OptionHelp, IsMadeFromTheTable) {
  EXPECT_EQ(help_text(Boat().syntax()),
            "usage: boat row [options]\n"
            "\nRows.\n\n"
            "  -p, --port-side N      side|other side\n"
            "  --dry_run              start nothing\n"
            "  --use-gpu True|False   (default: False)\n"
            "  --set K=V              may be repeated\n"
            "  -o, --override K=V...  changes\n"
            "  -h, --help             print this text\n"
            "\nexample\n  boat row --port-side 1\n");
}

TEST(OptionHelp, LongTextsAreWrapped) {
  const std::string text = option_line({{"--a"}, "B", std::string(70, 'x') + " " + std::string(30, 'y')}, 20);
  EXPECT_EQ(text,
            "  --a B             " + std::string(70, 'x') + "\n" + std::string(20, ' ') + std::string(30, 'y') + "\n");
}

TEST(OptionHelp, MarkdownEscapesWhatEndsACell) {
  EXPECT_THAT(
      markdown_table(Boat().syntax()),
      AllOf(StartsWith("| option | meaning |\n|---|---|\n| `--port-side` `-p` `--larboard` N | side\\|other side |\n"),
            HasSubstr("| `--help` `-h` | print this text |\n"), testing::Not(HasSubstr("sail"))));
}

TEST(OptionHelp, Topics) {
  EXPECT_EQ(help_for(Boat().syntax(), ""), help_text(Boat().syntax()));
  EXPECT_EQ(help_for(Boat().syntax(), kMarkdown), markdown_table(Boat().syntax()));
  EXPECT_THROW(help_for(Boat().syntax(), "oars"), UsageError);
}

}  // namespace
}  // namespace trireme
