// The memory that the ranks of one group share.
//
//   SegmentFile file = SegmentFile::anonymous(shape.total_bytes());      // rank 0
//   auto segment = Segment::format(file.fd(), shape);
//   auto segment = Segment::attach(open_segment(path).get(), shape);     // the others, by file.path()
//
// The file lives only as long as the ranks need to find each other; the mapping stays until the Segment ends. An
// anonymous file has no name anywhere: the others open it through /proc/<pid>/fd/<n>, and the kernel frees it with the
// last process, whatever kills them at whatever moment. Where the kernel forbids that (other user namespace, a program
// that is not dumpable) a named file of /dev/shm is the fallback; its name goes as soon as all have attached, and only
// a kill -9 of rank 0 within these few milliseconds leaves it behind.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "trireme/comm/engine/shm/layout.h"
#include "trireme/core/fd.h"

namespace trireme::comm::shm {

/// A file in memory, mode 0600, with all its pages there. Its name, if any, goes with this object.
class SegmentFile {
 public:
  /// Both throw SystemError with what was asked for and what is free.
  static SegmentFile anonymous(size_t bytes);
  static SegmentFile named(size_t bytes, const std::string& directory = "/dev/shm");
  SegmentFile(SegmentFile&& other) noexcept = default;
  ~SegmentFile();

  int fd() const { return fd_.get(); }
  /// By which another process of this user opens it.
  const std::string& path() const { return path_; }

 private:
  SegmentFile(UniqueFd fd, std::string path, bool unlink)
      : fd_(std::move(fd)), path_(std::move(path)), unlink_(unlink) {}
  void allocate(size_t bytes) const;

  UniqueFd fd_;
  std::string path_;
  bool unlink_ = false;
};

/// SystemError when it cannot be opened; PeerError when it is not a file of this user with mode 0600.
UniqueFd open_segment(const std::string& path);

/// One mapping. Thread rule: the fields that several ranks use are atomics or follow the rules of exchange.h.
class Segment {
 public:
  /// Writes the header and the control blocks. SystemError.
  static std::shared_ptr<Segment> format(int fd, const Shape& shape);
  /// Maps what format() has written. PeerError when version, shape or size are not what this rank expects.
  static std::shared_ptr<Segment> attach(int fd, const Shape& shape);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  const Shape& shape() const { return shape_; }
  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(base_); }
  ControlBlock& control(int rank) const {
    return *reinterpret_cast<ControlBlock*>(base_ + shape_.control_offset(rank));
  }
  std::byte* in(int rank, uint32_t round) const { return base_ + shape_.buffer_offset(rank, round); }
  std::byte* out(int rank, uint32_t round) const { return in(rank, round) + shape_.piece_bytes; }

 private:
  Segment(std::byte* base, const Shape& shape) : base_(base), shape_(shape) {}
  static std::shared_ptr<Segment> map(int fd, const Shape& shape);

  std::byte* const base_;
  const Shape shape_;
};

}  // namespace trireme::comm::shm
