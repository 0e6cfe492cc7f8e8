// Keeps a second training out of an output folder, where the two would overwrite each other's checkpoints.
//
//   OutputLock lock("output/ResNet50");                // UsageError that names process and host when another has it
//
// Held on `.lock` of that folder, which is made; the kernel releases it when the process ends, however it does. On a
// file system without locks there is none. For rank 0. No torch here.
#pragma once

#include <filesystem>

#include "trireme/core/owner_lock.h"

namespace trireme::trainer {

class OutputLock {
 public:
  /// SystemError when the folder or the file cannot be made.
  explicit OutputLock(const std::filesystem::path& folder);

 private:
  OwnerLock lock_;
};

}  // namespace trireme::trainer
