#include <fmt/core.h>

#include "cli/commands.h"
#include "trireme/core/error.h"

namespace trireme::cli {

int doctor(const Words&) {
  throw UsageError("not yet");
}

}  // namespace trireme::cli
