#include "trireme/core/owner_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "trireme/core/backoff.h"
#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/net.h"
#include "trireme/core/text.h"

namespace trireme {
namespace {

constexpr Millis kProbeTime{100};  // a process that only looks whether the lock is free has it for an instant

std::string owner_in(const std::filesystem::path& file) {
  const std::string owner = read_file(file).value_or("");  // "4711 node7"
  const size_t space = owner.find(' ');
  if (space == std::string::npos) return "another process";
  return printable(fmt::format("process {} on {}", owner.substr(0, space), owner.substr(space + 1)));
}

}  // namespace

OwnerLock::OwnerLock(const std::filesystem::path& file)
    : file_(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
  if (!file_) throw SystemError(errno, "cannot write {}", file.string());
  const Deadline deadline = Deadline::in(kProbeTime);
  for (Backoff backoff(Millis(5), Millis(20)); ::flock(file_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;) {
    if (deadline.passed()) {
      other_ = owner_in(file);
      return;
    }
    backoff.pause(deadline);
  }
  // For the message of the other one only: what cannot be written is left out there.
  if (::ftruncate(file_.get(), 0) == 0) write_all(file_.get(), fmt::format("{} {}", ::getpid(), host_name()));
}

}  // namespace trireme
