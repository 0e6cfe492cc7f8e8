// Ways to make a disk refuse or a process die, for tests.
#pragma once

#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "trireme/core/file.h"

namespace trireme {

/// While it lives, no file may grow beyond `bytes`: writes fail with EFBIG, as on a full disk with ENOSPC.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  sighandler_t handler_ = SIG_DFL;
};

/// A file system of `bytes`, where this process may mount one (root outside of a container).
class SmallDisk {
 public:
  explicit SmallDisk(size_t bytes) {
    const std::string options = "size=" + std::to_string(bytes);
    mounted_ = ::mount("none", folder_.path().c_str(), "tmpfs", 0, options.c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(folder_.path().c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool mounted() const { return mounted_; }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  TempDir folder_;
  bool mounted_ = false;
};

/// While it lives, permissions hold for this process even if it is root's.
class NotRoot {
 public:
  NotRoot() : before_(::geteuid()) {
    if (before_ == 0 && ::seteuid(65534) != 0) ::abort();
  }
  ~NotRoot() {
    if (::seteuid(before_) != 0) ::abort();
  }
  NotRoot(const NotRoot&) = delete;
  NotRoot& operator=(const NotRoot&) = delete;

 private:
  uid_t before_;
};

/// Runs `work` in a child that gets SIGKILL as soon as one of its files would grow beyond `bytes`. Returns whether it
/// died of that.
template <typename Work>
bool killed_at_byte(rlim_t bytes, Work work) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::signal(SIGXFSZ, [](int) { ::kill(::getpid(), SIGKILL); });
    const rlimit limit{bytes, bytes};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    work();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);  // the alarm is its deadline
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

inline std::string content_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void put(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

inline void flip_byte(const std::filesystem::path& path, size_t at) {
  std::string content = content_of(path);
  content.at(at) = static_cast<char>(content[at] ^ 1);
  put(path, content);
}

inline size_t entries_in(const std::filesystem::path& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

}  // namespace trireme
