#include <fmt/core.h>

#include "cli/commands.h"
#include "trireme/core/env.h"
#include "trireme/launch/launcher.h"
#include "trireme/launch/options/help.h"
#include "trireme/launch/options/options.h"

namespace trireme::cli {

int launch(const Words& words) {
  const auto log = launch::plain_log();
  launch::Request request = launch::parse_launch(words, env::all());
  if (!request.help_topic) return launch::run_launch(std::move(request));
  fmt::print("{}", launch::launch_help(*request.help_topic));
  return 0;
}

}  // namespace trireme::cli
