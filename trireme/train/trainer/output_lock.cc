#include "trireme/train/trainer/output_lock.h"

#include "trireme/core/error.h"

namespace trireme::trainer {
namespace {

namespace fs = std::filesystem;

fs::path made(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw SystemError(error.value(), "cannot make the folder {}", folder.string());
  return folder;
}

}  // namespace

OutputLock::OutputLock(const fs::path& folder) : lock_(made(folder) / ".lock") {
  if (const auto& owner = lock_.held_by())
    throw UsageError(
        "{} is in use: {} trains into it, and two would overwrite each other's checkpoints; wait for it, end it, or "
        "take another folder by -o Global.output_dir=PATH",
        folder.string(), *owner);
}

}  // namespace trireme::trainer
