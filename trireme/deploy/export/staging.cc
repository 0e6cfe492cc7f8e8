#include "trireme/deploy/export/staging.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "trireme/core/durable.h"
#include "trireme/core/error.h"
#include "trireme/deploy/bundle/description.h"

namespace trireme::deploy {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAside = "old";

/// Whether there was none.
bool make_folder(const fs::path& folder) {
  std::error_code failed;
  const bool is_new = fs::create_directories(folder, failed);
  if (failed || !fs::is_directory(folder, failed))
    throw SystemError(failed ? failed.value() : ENOTDIR, "cannot make the folder {} for the exported model",
                      folder.string());
  return is_new;
}

void move_file(const fs::path& from, const fs::path& to) {
  std::error_code failed;
  fs::rename(from, to, failed);
  if (failed) throw SystemError(failed.value(), "cannot rename {} to {}", from.string(), to.string());
}

/// Links count as what they are, not as what they lead to.
bool is_there(const fs::path& file) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(file, ignored));
}

void make_room(const fs::path& file, const fs::path& aside) {
  std::error_code ignored;
  if (fs::is_directory(fs::symlink_status(file, ignored)))
    throw SystemError(EISDIR, "cannot replace {}; remove that folder or name another to export to", file.string());
  if (is_there(file)) move_file(file, aside);
}

/// Until it is closed. A file system without locks goes without.
UniqueFd lock(const fs::path& folder) {
  UniqueFd file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw UsageError("another export is writing to {}; wait for it, or name another folder", folder.string());
  return file;
}

/// Hidden folders of exports that were killed: the holder of the lock is the only export at work.
std::vector<fs::path> leftovers(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (fs::directory_iterator at(folder, ignored), end; !ignored && at != end; at.increment(ignored))
    if (at->path().filename().string().starts_with(bundle::kStagingPrefix)) found.push_back(at->path());
  return found;
}

/// They may be the last good model.
bool holds_old_files(const fs::path& leftover) {
  std::error_code failed;
  return !fs::is_empty(leftover / kAside, failed) && !failed;
}

}  // namespace

Staging::Staging(fs::path folder) : folder_(std::move(folder)) {
  if (folder_.empty()) throw UsageError("the folder to export to has an empty name");
  is_new_ = make_folder(folder_);
  lock_ = lock(folder_);
  std::error_code ignored;
  for (const fs::path& leftover : leftovers(folder_))
    if (!holds_old_files(leftover)) fs::remove_all(leftover, ignored);
  std::string name = (folder_ / bundle::kStagingPrefix).string() + "XXXXXX";
  if (::mkdtemp(name.data()) == nullptr)
    throw SystemError(errno, "cannot write into {}; name another folder", folder_.string());
  hidden_ = name;
}

Staging::~Staging() {
  std::error_code ignored;
  fs::remove_all(hidden_, ignored);
  if (is_new_) fs::remove(folder_, ignored);
}

void Staging::commit(const std::vector<std::string>& files) {
  std::vector<std::string> placed;
  try {
    replace(files, placed);
  } catch (const Error& error) {
    if (put_back(files, placed)) throw;
    const fs::path kept = std::exchange(hidden_, {}) / kAside;
    throw Error(error.exit_code(),
                fmt::format("{}; nor could the old files be put back: they are in {}, move them to {}", error.what(),
                            kept.string(), folder_.string()));
  }
  sync_folder(folder_);
  std::error_code ignored;
  for (const fs::path& leftover : leftovers(folder_)) fs::remove_all(leftover, ignored);
}

void Staging::replace(const std::vector<std::string>& files, std::vector<std::string>& placed) const {
  make_folder(aside());
  for (auto file = files.rbegin(); file != files.rend(); ++file) make_room(folder_ / *file, aside() / *file);
  for (const std::string& file : files) {
    if (!is_there(hidden_ / file)) continue;
    move_file(hidden_ / file, folder_ / file);
    placed.push_back(file);
  }
}

fs::path Staging::aside() const {
  return hidden_ / kAside;
}

bool Staging::put_back(const std::vector<std::string>& files, const std::vector<std::string>& placed) const {
  std::error_code ignored;
  for (const std::string& file : placed) fs::remove(folder_ / file, ignored);
  bool all = true;
  for (const std::string& file : files) {
    std::error_code failed;
    if (is_there(aside() / file)) fs::rename(aside() / file, folder_ / file, failed);
    all = all && !failed;
  }
  return all;
}

}  // namespace trireme::deploy
