// File descriptors that close themselves, and the few calls on them that everyone needs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "trireme/core/deadline.h"

namespace trireme {

/// Owns one descriptor. Moves, never copies.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    reset(other.release());
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

struct FdPair {
  UniqueFd first;   // a pipe's read end
  UniqueFd second;  // a pipe's write end
};

/// All made close-on-exec. Throw SystemError.
FdPair make_pipe();

void set_nonblocking(int fd, bool on = true);

/// Writes everything; false when the other side is gone or the disk is full (errno says which).
bool write_all(int fd, std::string_view bytes);

/// Waits until `fd` can be read (or written) or has failed; false when the deadline passed first.
bool wait_readable(int fd, Deadline deadline);
bool wait_writable(int fd, Deadline deadline);

/// An anonymous file in memory holding `bytes` for good: processes that inherit it cannot change it. Its position is
/// shared, so readers should use pread(2).
UniqueFd make_memory_file(const char* name, std::string_view bytes);

}  // namespace trireme
