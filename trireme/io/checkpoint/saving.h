// Where the rank that writes a checkpoint puts its tensors as they come: on the disk, or, to be written in the background,
// into memory first. For Checkpoint.
#pragma once

#include <torch/types.h>

#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/io/async_writer.h"
#include "trireme/io/checkpoint_folder.h"
#include "trireme/io/slow_save.h"

namespace trireme::detail {

/// What fails is thrown by finish() alone: until then the other ranks count on this one to bring tensors together.
class Saving {
 public:
  /// `background` may be null. Both must outlive this. A save to the disk that takes longer than `patience` says so in the
  /// log.
  Saving(const io::CheckpointFolder& folder, io::AsyncWriter* background, std::string name, io::Manifest manifest,
         Millis patience = io::SlowSave::kPatience);

  /// A file, whose tensors follow by io::writing_order().
  void begin(const std::string& file, const std::vector<io::TensorLayout>& tensors);
  void write(const std::string& name, const torch::Tensor& tensor);
  /// When it returns the checkpoint, with these files too, is on the disk, or in memory to be written.
  void finish(const std::map<std::string, io::TensorMap>& more);

 private:
  void attempt(const std::function<void()>& work);

  io::AsyncWriter* background_;
  std::string name_;
  std::optional<io::CheckpointWriter> disk_;
  std::optional<io::SlowSave> note_;  // with disk_
  io::Snapshot memory_;               // for the background
  io::TensorMap* file_ = nullptr;
  std::exception_ptr failed_;
};

}  // namespace trireme::detail
