#include "trireme/deploy/staging.h"

#include <cerrno>
#include <cstdlib>

#include "trireme/core/error.h"
#include "trireme/storage/durable.h"

namespace trireme::deploy {
namespace {

namespace fs = std::filesystem;

void make_folder(const fs::path& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed || !fs::is_directory(folder, failed))
    throw SystemError(failed ? failed.value() : ENOTDIR, "cannot make the folder {} for the exported model",
                      folder.string());
}

void move_file(const fs::path& from, const fs::path& to) {
  std::error_code failed;
  fs::rename(from, to, failed);
  if (failed) throw SystemError(failed.value(), "cannot rename {} to {}", from.string(), to.string());
}

void remove_file(const fs::path& file) {
  std::error_code failed;
  fs::remove(file, failed);
  if (failed) throw SystemError(failed.value(), "cannot replace {}", file.string());
}

}  // namespace

Staging::Staging(fs::path folder) : folder_(std::move(folder)) {
  if (folder_.empty()) throw UsageError("the folder to export to has an empty name");
  make_folder(folder_);
  std::string name = (folder_ / ".export-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    throw SystemError(errno, "cannot write into {}; name another folder", folder_.string());
  hidden_ = name;
}

Staging::~Staging() {
  std::error_code ignored;
  fs::remove_all(hidden_, ignored);
}

void Staging::commit(const std::vector<std::string>& files) const {
  remove_file(folder_ / files.back());
  for (const std::string& file : files) {
    if (fs::exists(hidden_ / file))
      move_file(hidden_ / file, folder_ / file);
    else
      remove_file(folder_ / file);
  }
  io::sync_folder(folder_);
}

}  // namespace trireme::deploy
