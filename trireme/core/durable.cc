#include "trireme/core/durable.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <vector>

#include "trireme/core/crc32c.h"
#include "trireme/core/error.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

constexpr const char* kTemporary = ".tmp";

// Unique in this process and, by its number, among those of this machine.
std::string unique_suffix() {
  static std::atomic<int> count{0};
  return fmt::format(".{}-{}{}", ::getpid(), count++, kTemporary);
}

bool is_there(const fs::path& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

// A name that is free: a dead process of our number, before a restart or in another container, may have left some.
fs::path hidden_beside(const fs::path& path) {
  for (;;) {
    fs::path hidden = path.parent_path() / fmt::format(".{}{}", path.filename().string(), unique_suffix());
    if (!is_there(hidden)) return hidden;
  }
}

bool is_hidden_temporary(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with('.') && name.ends_with(kTemporary);
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

[[noreturn]] void fail_to_write(int error, const fs::path& path, const DurableOptions& options) {
  std::error_code unknown;
  const fs::space_info space = fs::space(folder_of(path), unknown);
  throw SystemError(error, "cannot write {} ({} bytes needed, {} free there; {})", path.string(), options.bytes_needed,
                    unknown ? "unknown" : std::to_string(space.available), options.kept);
}

UniqueFd open_folder(const fs::path& folder) {
  return UniqueFd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

}  // namespace

DurableFile::DurableFile(fs::path path, DurableOptions options) : path_(std::move(path)), options_(std::move(options)) {
  do {
    temporary_ = path_.string() + unique_suffix();
    file_.reset(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  } while (!file_ && errno == EEXIST);
  if (!file_) fail();
}

DurableFile::~DurableFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void DurableFile::fail() const {
  fail_to_write(errno, path_, options_);
}

void DurableFile::write(std::string_view bytes) {
  if (!write_all(file_.get(), bytes)) fail();
  sum_ = {sum_.bytes + bytes.size(), crc32c(bytes, sum_.crc32c)};
}

FileSum DurableFile::commit() {
  if (options_.flush && ::fsync(file_.get()) != 0) fail();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail();
  temporary_.clear();
  if (options_.flush) sync_folder(folder_of(path_));
  return sum_;
}

DurableFolder::DurableFolder(fs::path parent, std::string name, DurableOptions options)
    : parent_(std::move(parent)), name_(std::move(name)), options_(std::move(options)) {
  int refused = 0;
  do {
    temporary_ = hidden_beside(parent_ / name_);
    refused = ::mkdir(temporary_.c_str(), 0755);
  } while (refused != 0 && errno == EEXIST);
  if (refused != 0) fail();
  lock_ = open_folder(temporary_);
  // A file system without locks says so with an error: then leftovers cannot be told from work, and stay.
  if (lock_) ::flock(lock_.get(), LOCK_EX | LOCK_NB);
}

DurableFolder::~DurableFolder() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

void DurableFolder::fail() const {
  fail_to_write(errno, parent_ / name_, options_);
}

void DurableFolder::move(const fs::path& from, const fs::path& to) const {
  if (::rename(from.c_str(), to.c_str()) != 0) fail();
}

void DurableFolder::commit() {
  sync_folder(temporary_);
  const fs::path target = parent_ / name_;
  if (is_there(target))
    replace(target);
  else
    move(temporary_, target);
  temporary_.clear();
  lock_.reset();
  sync_folder(parent_);
}

// Folders cannot be renamed over one another. The order of the steps leaves the target or its previous one in place
// after each of them.
void DurableFolder::replace(const fs::path& target) {
  const fs::path previous = target.string() + kPrevious;
  const bool first_time = !is_there(previous);
  const fs::path aside = first_time ? previous : hidden_beside(target);
  move(target, aside);
  if (::rename(temporary_.c_str(), target.c_str()) != 0) {
    const int error = errno;
    ::rename(aside.c_str(), target.c_str());
    fail_to_write(error, target, options_);
  }
  if (first_time) return;
  if (!remove_folder(previous)) fail();
  move(aside, previous);
}

int remove_leftovers(const fs::path& parent) {
  int removed = 0;
  std::error_code ignored;
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(parent, ignored))
    if (entry.is_directory(ignored) && is_hidden_temporary(entry.path())) found.push_back(entry.path());
  for (const fs::path& path : found) {
    const UniqueFd folder = open_folder(path);
    if (!folder || ::flock(folder.get(), LOCK_EX | LOCK_NB) != 0) continue;  // someone is at work in it
    removed += fs::remove_all(path, ignored) > 0 ? 1 : 0;
  }
  return removed;
}

bool remove_folder(const fs::path& folder) {
  const fs::path hidden = hidden_beside(folder);
  if (::rename(folder.c_str(), hidden.c_str()) != 0) return false;
  std::error_code error;
  fs::remove_all(hidden, error);
  if (error) errno = error.value();
  return !error;
}

void sync_folder(const fs::path& folder) {
  const UniqueFd fd = open_folder(folder);
  // EINVAL: this file system has nothing to flush for a folder.
  if (!fd || (::fsync(fd.get()) != 0 && errno != EINVAL))
    throw SystemError(errno, "cannot flush the folder {} to the disk", folder.string());
}

FileSum sum_of_file(const fs::path& path) {
  constexpr size_t kChunk = size_t{1} << 20;
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw SystemError(errno, "cannot open {}", path.string());
  std::string buffer(kChunk, '\0');
  FileSum sum;
  for (;;) {
    const ssize_t n = ::read(file.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw SystemError(errno, "cannot read {} after {} bytes", path.string(), sum.bytes);
    if (n == 0) return sum;
    const std::string_view part(buffer.data(), static_cast<size_t>(n));
    sum = {sum.bytes + part.size(), crc32c(part, sum.crc32c)};
  }
}

void check_sum(const fs::path& path, const FileSum& promised, std::string_view promiser) {
  std::error_code ignored;  // sum_of_file() tells
  const uint64_t bytes = fs::file_size(path, ignored);
  if (!ignored && bytes != promised.bytes)
    throw UsageError("{} has {} bytes, but {} says {}", path.string(), bytes, promiser, promised.bytes);
  const FileSum found = sum_of_file(path);
  if (found != promised)
    throw UsageError("{} is damaged: its CRC-32C is {}, but {} says {}", path.string(), found.crc32c, promiser,
                     promised.crc32c);
}

}  // namespace trireme
