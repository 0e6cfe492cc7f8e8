#include "trireme/launch/options/help.h"

#include <fmt/core.h>

#include <algorithm>

#include "cli/commands.h"
#include "trireme/core/env.h"
#include "trireme/core/error.h"
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

bool is_external(const std::string& name) {
  return std::any_of(externals().begin(), externals().end(), [&](const External& e) { return name == e.name; });
}

}  // namespace

int help(const Words& words) {
  if (words.empty()) {
    fmt::print("{}", overview());
  } else if (words[0] == "launch") {
    if (words.size() > 1 && words[1] == "--markdown")
      fmt::print("{}", launch::options_markdown());
    else
      fmt::print("{}", launch::launch_help(words.size() > 1 ? words[1] : ""));
  } else if (words[0] == "environment") {
    fmt::print("{}", environment_text());
  } else if (words[0] == "doctor") {
    return doctor({"--help"});
  } else if (words[0] == "tipc") {
    return tipc(words.size() > 1 ? Words{words[1], "--help"} : Words{"--help"});
  } else if (is_external(words[0])) {
    run_external(words[0], {"--help"});
    throw UsageError("trireme-{} is not here to explain itself; it is built with libtorch (make build)", words[0]);
  } else {
    throw UsageError(
        "no help on \"{}\"; there is: trireme help launch [TOPIC], help doctor, help tipc, help train, help eval, "
        "help export, help infer, help serve, help environment",
        words[0]);
  }
  return 0;
}

}  // namespace trireme::cli
