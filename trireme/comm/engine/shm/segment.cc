#include "trireme/comm/engine/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/core/token.h"

namespace trireme::comm::shm {
namespace {

constexpr mode_t kOwnerOnly = 0600;

// tmpfs hands out pages on first touch and kills a process that touches one too many: ask before.
void check_free_space(int fd, size_t bytes, const std::string& directory) {
  struct statvfs info {};
  if (::fstatvfs(fd, &info) != 0) throw SystemError(errno, "cannot ask {} for its free space", directory);
  const size_t available = static_cast<size_t>(info.f_bavail) * info.f_frsize;
  if (available < bytes)
    throw SystemError(ENOSPC,
                      "shared memory of {} bytes does not fit in {}, where {} bytes are free; enlarge it (docker run "
                      "--shm-size=1g, mount -o remount,size=1g {})",
                      bytes, directory, available, directory);
}

}  // namespace

SegmentFile SegmentFile::anonymous(size_t bytes) {
  UniqueFd fd(::memfd_create("trireme", MFD_CLOEXEC));
  if (!fd) throw SystemError(errno, "cannot make anonymous shared memory");
  const std::string path = fmt::format("/proc/{}/fd/{}", ::getpid(), fd.get());
  SegmentFile file(std::move(fd), path, false);
  file.allocate(bytes);
  return file;
}

SegmentFile SegmentFile::named(size_t bytes, const std::string& directory) {
  const std::string path = fmt::format("{}/trireme-{}", directory, to_hex(random_bytes(16)));
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, kOwnerOnly));
  if (!fd) throw SystemError(errno, "cannot create {}", path);
  SegmentFile file(std::move(fd), path, true);
  check_free_space(file.fd(), bytes, directory);
  file.allocate(bytes);
  return file;
}

void SegmentFile::allocate(size_t bytes) const {
  if (::fchmod(fd(), kOwnerOnly) != 0) throw SystemError(errno, "cannot make {} private", path_);
  const int error = ::posix_fallocate(fd(), 0, static_cast<off_t>(bytes));
  if (error != 0) throw SystemError(error, "cannot get {} bytes of shared memory ({})", bytes, path_);
}

SegmentFile::~SegmentFile() {
  if (fd_ && unlink_) ::unlink(path_.c_str());
}

UniqueFd open_segment(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) throw SystemError(errno, "cannot open the shared memory {}", path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) throw SystemError(errno, "cannot look at the shared memory {}", path);
  if (!S_ISREG(info.st_mode) || (info.st_mode & 0777) != kOwnerOnly || info.st_uid != ::geteuid())
    throw PeerError("{} has mode {:o} and owner {}, expected a file with mode 600 and owner {}: not made by this job",
                    path, info.st_mode, info.st_uid, ::geteuid());
  return fd;
}

std::shared_ptr<Segment> Segment::map(int fd, const Shape& shape) {
  void* base = ::mmap(nullptr, shape.total_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (base == MAP_FAILED) throw SystemError(errno, "cannot map {} bytes of shared memory", shape.total_bytes());
  return std::shared_ptr<Segment>(new Segment(static_cast<std::byte*>(base), shape));
}

std::shared_ptr<Segment> Segment::format(int fd, const Shape& shape) {
  std::shared_ptr<Segment> segment = map(fd, shape);
  auto* header = new (segment->base_) SegmentHeader;
  header->ranks = shape.ranks;
  header->piece_bytes = shape.piece_bytes;
  header->total_bytes = shape.total_bytes();
  for (int rank = 0; rank < shape.ranks; ++rank) new (&segment->control(rank)) ControlBlock;
  return segment;
}

std::shared_ptr<Segment> Segment::attach(int fd, const Shape& shape) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) throw SystemError(errno, "cannot look at the shared memory");
  if (static_cast<size_t>(info.st_size) != shape.total_bytes())
    throw PeerError("the shared memory has {} bytes, this rank expects {}: do all ranks give the same options?",
                    info.st_size, shape.total_bytes());
  std::shared_ptr<Segment> segment = map(fd, shape);
  const SegmentHeader& header = segment->header();
  if (header.magic != kMagic || header.version != kLayoutVersion)
    throw PeerError(
        "the shared memory has layout version {}, this rank expects {}: are all ranks built from one Trireme?",
        header.version, kLayoutVersion);
  if (header.ranks != shape.ranks || header.piece_bytes != shape.piece_bytes)
    throw PeerError("the shared memory is for {} ranks and pieces of {} bytes, this rank expects {} and {}",
                    header.ranks, header.piece_bytes, shape.ranks, shape.piece_bytes);
  return segment;
}

Segment::~Segment() {
  ::munmap(base_, shape_.total_bytes());
}

}  // namespace trireme::comm::shm
