// Files that take their places in a folder together.
//
//   Staging staging("inference");                  // makes the folder
//   write(staging.path() / "inference.yml");       // as long as it takes
//   staging.commit({"inference.pt", "inference.yml"});
//
// Until commit() the folder's own files are untouched. Then the last named, without which the others mean nothing, is
// taken away first and put back last: a crash in between leaves a folder that is seen to be incomplete, never a
// mixture.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace trireme::deploy {

class Staging {
 public:
  /// SystemError when the folder cannot be made or written to.
  explicit Staging(std::filesystem::path folder);
  ~Staging();  ///< removes what was not committed
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  /// Where to write: a hidden folder in the folder.
  const std::filesystem::path& path() const { return hidden_; }
  /// A file that is named but was not written is removed from the folder: it belonged to what was there before.
  void commit(const std::vector<std::string>& files) const;

 private:
  std::filesystem::path folder_;
  std::filesystem::path hidden_;
};

}  // namespace trireme::deploy
