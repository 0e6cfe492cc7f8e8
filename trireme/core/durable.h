// Files and folders that appear whole or not at all, and stay through a loss of power.
//
//   DurableFile file("model.safetensors", {.bytes_needed = 4096});
//   file.write(bytes);
//   file.commit();            // flushed to the disk, then renamed into place; without it nothing has happened
//
// A text in one call: write_file_atomically() (core/file.h). This is the only writer of files that matter; logs and
// event files are appended to instead.
//
// What fails throws SystemError with the path, the bytes needed and those free, and leaves what was there before.
// An object belongs to one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "trireme/core/fd.h"
#include "trireme/core/file_sum.h"

namespace trireme {

struct DurableOptions {
  uint64_t bytes_needed = 0;                           ///< for the message when the disk is full
  std::string kept = "what was there before is kept";  ///< what the user still has when this fails
  bool flush = true;  ///< false: whole after a crash of this process, but perhaps lost with the power
};

class DurableFile {
 public:
  explicit DurableFile(std::filesystem::path path, DurableOptions options = {});
  ~DurableFile();  ///< removes what was not committed
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  void write(std::string_view bytes);
  FileSum commit();

 private:
  [[noreturn]] void fail() const;

  std::filesystem::path path_;
  DurableOptions options_;
  std::string temporary_;  // empty: committed
  UniqueFd file_;
  FileSum sum_;
};

/// A folder that is filled under a hidden name and then takes its place. A folder of that name becomes NAME.previous,
/// which takes the place of an older NAME.previous: at each moment one of them is there.
class DurableFolder {
 public:
  static constexpr const char* kPrevious = ".previous";

  DurableFolder(std::filesystem::path parent, std::string name, DurableOptions options = {});
  ~DurableFolder();  ///< removes what was not committed
  DurableFolder(const DurableFolder&) = delete;
  DurableFolder& operator=(const DurableFolder&) = delete;

  /// Where to write.
  const std::filesystem::path& path() const { return temporary_; }
  void commit();

 private:
  void move(const std::filesystem::path& from, const std::filesystem::path& to) const;
  void replace(const std::filesystem::path& target);
  [[noreturn]] void fail() const;

  std::filesystem::path parent_;
  std::string name_;
  DurableOptions options_;
  std::filesystem::path temporary_;  // empty: committed
  UniqueFd lock_;                    // held while it is filled: tells a folder in work from a leftover
};

/// Removes the hidden folders that dead processes have left in `parent`; those in work stay. Returns how many.
int remove_leftovers(const std::filesystem::path& parent);
/// Removes a whole folder: it disappears at once, under a hidden name, and then its files. False, with errno: refused.
bool remove_folder(const std::filesystem::path& folder);
/// Renames and new names in `folder` are on the disk when it returns. Throws SystemError.
void sync_folder(const std::filesystem::path& folder);
/// Reads the whole file. Throws SystemError.
FileSum sum_of_file(const std::filesystem::path& path);
/// UsageError with both numbers when the file is not the one that `promiser` tells of; SystemError when it cannot be
/// read.
void check_sum(const std::filesystem::path& path, const FileSum& promised, std::string_view promiser);

}  // namespace trireme
