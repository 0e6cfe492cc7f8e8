#include "trireme/trainer/output_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "trireme/core/error.h"
#include "trireme/core/file.h"
#include "trireme/core/net.h"
#include "trireme/core/text.h"

namespace trireme::trainer {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& folder, const fs::path& file) {
  const std::string owner = read_file(file).value_or("");  // "4711 node7"
  const size_t space = owner.find(' ');
  const std::string who = space == std::string::npos
                              ? "another process"
                              : fmt::format("process {} on {}", owner.substr(0, space), owner.substr(space + 1));
  throw UsageError(
      "{} is in use: {} trains into it, and two would overwrite each other's checkpoints; wait for it, end it, or take "
      "another folder by -o Global.output_dir=PATH",
      folder.string(), printable(who));
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw SystemError(error.value(), "cannot make the folder {}", folder.string());
}

}  // namespace

OutputLock::OutputLock(const fs::path& folder) {
  make_folder(folder);
  const fs::path path = folder / ".lock";
  file_.reset(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file_) throw SystemError(errno, "cannot write {}", path.string());
  if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) refuse(folder, path);
  // For the message of the other one only: what cannot be written is left out there.
  if (::ftruncate(file_.get(), 0) == 0) write_all(file_.get(), fmt::format("{} {}", ::getpid(), host_name()));
}

}  // namespace trireme::trainer
