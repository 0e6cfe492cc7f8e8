// Lets one process in at a time; the others get an error that names it.
//
//   OwnerLock lock(folder / ".lock");
//   if (const auto owner = lock.held_by()) throw UsageError("{} is in use by {}", folder.string(), *owner);
//
// Held on a file, which is made and stays; the kernel releases it when the process ends, however it does. On a file
// system without locks no process is kept out.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "trireme/core/fd.h"

namespace trireme {

class OwnerLock {
 public:
  /// Takes it if it is free. SystemError when the file cannot be made.
  explicit OwnerLock(const std::filesystem::path& file);

  /// "process 4711 on node7" when another has it; nothing when it is ours.
  const std::optional<std::string>& held_by() const { return other_; }

 private:
  UniqueFd file_;
  std::optional<std::string> other_;
};

}  // namespace trireme
