#include "trireme/core/version.h"

#include <fmt/core.h>

#include "cli/commands.h"

namespace trireme::cli {

int version(const Words&) {
  fmt::print("trireme {}\n", kVersion);
  return 0;
}

}  // namespace trireme::cli
