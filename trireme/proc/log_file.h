// A worker's log file: appended to, rotated by size, and never a reason to stop the job.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/core/fd.h"

namespace trireme::proc {

/// Rotation: when the file has reached max_bytes at the end of a line (or of 1 MiB without one), `log` becomes `log.1`,
/// `log.1` becomes `log.2` … and the oldest beyond `keep` is removed.
class LogFile {
 public:
  struct Options {
    size_t max_bytes = 256u << 20;  // 0: never rotate
    int keep = 4;
    bool overwrite = false;
  };

  LogFile(std::filesystem::path path, Options options);

  /// Appends. After a failure (see error()) the file tries again with every write, so a disk that has room again is
  /// used.
  void write(std::string_view bytes);
  /// When the name no longer leads to the open file, makes the folder and a new file. Whether that was so.
  bool reopen_if_gone();
  const std::filesystem::path& path() const { return path_; }
  /// What went wrong first, if anything: "cannot write log/workerlog.0: No space left on device".
  const std::optional<std::string>& error() const { return error_; }

 private:
  bool open(bool truncate);
  void rotate();
  void fail(int number);

  std::filesystem::path path_;
  Options options_;
  UniqueFd file_;
  size_t size_ = 0;
  std::optional<std::string> error_;
};

}  // namespace trireme::proc
