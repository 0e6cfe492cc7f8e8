// Writes checkpoints while training goes on.
//
//   AsyncWriter writer(CheckpointFolder("output"));
//   writer.write("step_000500", {manifest, {{"model", state_dict(*net)}}});   // returns when the tensors are copied
//   writer.wait();                                                            // at the end: on the disk, or throws
//
// write() copies the tensors first, so the next step may change them. One checkpoint is written at a time: the next
// write() waits for it, with a deadline. What failed in the background is thrown by the next write() or wait(), once.
// An object belongs to one thread.
#pragma once

#include <functional>
#include <future>
#include <string>
#include <thread>

#include "trireme/core/clock.h"
#include "trireme/io/checkpoint_folder.h"
#include "trireme/io/slow_save.h"

namespace trireme::io {

struct AsyncWriterOptions {
  Millis timeout = std::chrono::minutes(30);  ///< how long write() and wait() wait for the disk
  Millis patience = SlowSave::kPatience;      ///< a write that takes longer says so in the log
};

class AsyncWriter {
 public:
  using Write = std::function<void(const std::string& name, const Snapshot& snapshot)>;

  explicit AsyncWriter(const CheckpointFolder& folder, AsyncWriterOptions options = {});
  /// With another way to write.
  explicit AsyncWriter(Write write, AsyncWriterOptions options = {});
  /// Waits for the write under way, however long the disk takes: its memory is in use. An error goes to the log.
  ~AsyncWriter();
  AsyncWriter(const AsyncWriter&) = delete;
  AsyncWriter& operator=(const AsyncWriter&) = delete;

  /// Throws what the write before it failed with, having begun nothing then; SystemError (ETIMEDOUT) when that one is
  /// not done in time.
  void write(const std::string& name, const Snapshot& snapshot);
  /// The same with tensors that nobody else changes: they are not copied.
  void write_own(const std::string& name, Snapshot snapshot);
  /// Until what was asked for is on the disk. Throws as write() does.
  void wait();

 private:
  Write write_;
  AsyncWriterOptions options_;
  std::string name_;  // of the write under way
  std::future<void> done_;
  std::thread thread_;
};

}  // namespace trireme::io
