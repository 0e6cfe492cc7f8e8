// Event files for TensorBoard: `tensorboard --logdir DIR` draws them while training goes on. Needs no libtorch.
//
//   EventWriter events("output/tensorboard");
//   events.add_scalar("train/loss", 0.31, step);
//   events.flush();
//
// A file is a sequence of records (length, checksum, protocol buffer, checksum); a killed process loses at most what
// was not flushed, and a half-written last record is skipped by the reader. All functions may be called from several
// threads and throw SystemError that names the file when the disk refuses; what was added then is gone, the file stays
// readable.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>

#include "trireme/core/fd.h"
#include "trireme/core/thread_annotations.h"

namespace trireme::io {

struct EventWriterOptions {
  std::chrono::milliseconds flush_every = std::chrono::seconds(5);  ///< looked at when something is added
};

class EventWriter {
 public:
  /// Makes the folder and in it a file of its own: events.out.tfevents.TIME.HOST.PROCESS.NUMBER
  explicit EventWriter(const std::filesystem::path& folder, EventWriterOptions options = {});
  ~EventWriter();  ///< flushes; an error goes to the log
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  void add_scalar(std::string_view tag, double value, int64_t step);
  void flush();

  const std::filesystem::path& file() const { return path_; }

 private:
  void add_value(const std::string& value, int64_t step);
  void write_out() TRIREME_REQUIRES(mutex_);

  EventWriterOptions options_;
  std::filesystem::path path_;
  UniqueFd file_;
  Mutex mutex_;
  std::string buffer_ TRIREME_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point flushed_ TRIREME_GUARDED_BY(mutex_);
};

}  // namespace trireme::io
