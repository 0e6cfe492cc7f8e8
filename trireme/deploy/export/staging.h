// Files that take their places in a folder together.
//
//   Staging staging("inference");                  // makes the folder
//   write(staging.path() / "inference.yml");       // as long as it takes
//   staging.commit({"inference.pt", "inference.yml"});
//
// Until commit() the folder's own files are untouched. Then the last named, without which the others mean nothing, is
// moved aside first and its successor comes last: a crash in between leaves a folder that is seen to be incomplete,
// never a mixture. When a move fails, the old files are put back.
// One at a time: the folder is locked. An export that is killed leaves its hidden folder ".export-XXXXXX", and the next
// removes it; one with files that were moved aside, only once there are new ones.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/core/fd.h"

namespace trireme::deploy {

class Staging {
 public:
  /// SystemError when the folder cannot be made or written to, UsageError when another export works in it.
  explicit Staging(std::filesystem::path folder);
  ~Staging();  ///< removes what was not committed, and the folder if it is new and empty
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Where to write: a hidden folder in the folder.
  const std::filesystem::path& path() const { return hidden_; }
  /// A file that is named but was not written is removed from the folder: it belonged to what was there before.
  /// SystemError: a file could not be replaced; the folder's files are what they were. Where even that fails, the
  /// missing ones are in the hidden folder, which then stays and is named in the message.
  void commit(const std::vector<std::string>& files);

 private:
  void replace(const std::vector<std::string>& files, std::vector<std::string>& placed) const;
  bool put_back(const std::vector<std::string>& files, const std::vector<std::string>& placed) const;
  std::filesystem::path aside() const;

  std::filesystem::path folder_;
  bool is_new_ = false;
  UniqueFd lock_;
  std::filesystem::path hidden_;
};

}  // namespace trireme::deploy
