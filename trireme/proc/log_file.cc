#include "trireme/proc/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::proc {
namespace {

constexpr size_t kMaxLine = 1u << 20;  // a longer one is cut by the rotation

}  // namespace

LogFile::LogFile(std::filesystem::path path, Options options) : path_(std::move(path)), options_(options) {
  open(options_.overwrite);
}

bool LogFile::open(bool truncate) {
  file_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (truncate ? O_TRUNC : 0), 0644));
  if (!file_) {
    fail(errno);
    return false;
  }
  struct stat info {};
  size_ = ::fstat(file_.get(), &info) == 0 ? static_cast<size_t>(info.st_size) : 0;
  return true;
}

void LogFile::write(std::string_view bytes) {
  if (bytes.empty() || (!file_ && !open(false))) return;
  if (!write_all(file_.get(), bytes)) return fail(errno);
  size_ += bytes.size();
  const bool endless_line = size_ >= options_.max_bytes + kMaxLine;
  if (options_.max_bytes != 0 && size_ >= options_.max_bytes && (bytes.back() == '\n' || endless_line)) rotate();
}

bool LogFile::reopen_if_gone() {
  struct stat named {
  }, opened{};
  if (!file_ || ::fstat(file_.get(), &opened) != 0) return false;
  const bool found = ::stat(path_.c_str(), &named) == 0;
  if (found ? named.st_ino == opened.st_ino && named.st_dev == opened.st_dev : errno != ENOENT) return false;
  std::error_code ignored;  // open() says it
  std::filesystem::create_directories(path_.parent_path(), ignored);
  open(false);
  return true;
}

void LogFile::rotate() {
  const auto numbered = [&](int n) { return std::filesystem::path(path_.string() + "." + std::to_string(n)); };
  std::error_code ignored;
  std::filesystem::remove(numbered(options_.keep), ignored);
  for (int n = options_.keep - 1; n >= 1; --n) std::filesystem::rename(numbered(n), numbered(n + 1), ignored);
  std::error_code error;
  std::filesystem::rename(path_, numbered(1), error);
  if (error) return fail(error.value());  // better one long file than lost lines
  open(true);
}

void LogFile::fail(int number) {
  if (!error_) error_ = fmt::format("cannot write {}: {}", path_.string(), errno_text(number));
}

}  // namespace trireme::proc
