#include "trireme/proc/exit_status.h"

#include <fmt/core.h>
#include <sys/wait.h>

namespace trireme::proc {

ExitStatus ExitStatus::from_wait_status(int status) {
  if (WIFSIGNALED(status)) return signalled(WTERMSIG(status), WCOREDUMP(status));
  return exited(WEXITSTATUS(status));
}

std::string to_string(const ExitStatus& status) {
  if (status.signal() == 0) return fmt::format("exit {}", status.code());
  return fmt::format("killed by signal {}{}", status.signal(), status.core_dumped() ? " (core dumped)" : "");
}

}  // namespace trireme::proc
