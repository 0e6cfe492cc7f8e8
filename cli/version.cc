#include "trireme/core/version.h"

#include <fmt/core.h>

#include "cli/commands.h"
#include "trireme/core/option_help.h"

namespace trireme::cli {

int version(const Words& words) {
  const CommandSyntax syntax{.command = "trireme version", .usage = "", .about = "Prints the version.\n"};
  if (const auto topic = parse_command_line(syntax, words).help) return fmt::print("{}", help_for(syntax, *topic)), 0;
  fmt::print("trireme {}\n", kVersion);
  return 0;
}

}  // namespace trireme::cli
