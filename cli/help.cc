#include <fmt/core.h>

#include <optional>

#include "cli/commands.h"
#include "trireme/core/env.h"
#include "trireme/core/manual.h"
#include "trireme/core/options.h"
#include "trireme/core/version.h"

namespace trireme::cli {

std::string overview() {
  std::string text = fmt::format("Trireme {}: distributed training for C++.\n\nusage: trireme COMMAND …\n\n", kVersion);
  for (const Command& command : commands()) text += fmt::format("  {:<9} {}\n", command.name, command.summary);
  for (const External& external : externals()) text += fmt::format("  {:<9} {}\n", external.name, external.summary);
  return text +
         "\nexamples\n"
         "  trireme launch -n 2 ./train --lr 0.1                        two processes on this machine\n"
         "  trireme launch --ips 10.0.0.1,10.0.0.2 --gpus 0,1 ./train   the same command on both machines\n"
         "  trireme help launch\n"
         "  trireme help environment                                    every variable, read or set\n";
}

namespace {

const char* use_title(env::Use use) {
  switch (use) {
    case env::Use::launcher:
      return "Read by the launcher";
    case env::Use::program:
      return "Read by programs that use the library";
    case env::Use::worker:
      break;
  }
  return "Set in every worker";
}

// Markdown, because docs/environment.md is exactly this; it reads well in a terminal too.
std::string environment_text() {
  std::string text;
  std::optional<env::Use> current;
  for (const env::Variable& variable : env::variables()) {
    if (current != variable.use) text += fmt::format("{}## {}\n\n", text.empty() ? "" : "\n", use_title(variable.use));
    current = variable.use;
    text += fmt::format("- `{}`: {}\n", variable.name, variable.meaning);
  }
  return text;
}

std::string manual() {
  Manual page("trireme", "distributed training for C++");
  page.section("COMMANDS");
  page.lines(overview());
  page.section("SEE ALSO");
  std::string pages;
  for (const Command& command : commands())
    if (command.run != help && command.run != version) pages += fmt::format("trireme-{}(1)\n", command.name);
  for (const External& external : externals()) pages += fmt::format("trireme-{}(1)\n", external.name);
  page.lines(pages);
  return page.text();
}

}  // namespace

int help(const Words& words) {
  if (words == Words{std::string(kManual)}) return fmt::print("{}", manual()), 0;
  if (words.empty() || words[0] == "help" || words[0].starts_with('-')) {
    const CommandLine line = parse_command_line({.command = "trireme help", .operands = Operands::program}, words);
    return fmt::print("{}", overview()), 0;
  }
  if (words[0] == "environment") return fmt::print("{}", environment_text()), 0;
  Words asked{"--help"};
  asked.insert(asked.end(), words.begin() + 1, words.end());
  return run_command(words[0], asked);
}

}  // namespace trireme::cli
