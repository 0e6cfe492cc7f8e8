// Memory in which a rank's large tensors lie so that the other ranks of the host can read them where they are: an
// all_reduce then copies nothing into buffers (collectives.cc).
//
//   Arena& arena = Arena::make_for_process({.capacity = 64 << 30});      // before groups are joined
//   void* block = arena.allocate(25 << 20);                              // null when it is full
//   ArenaView view = open_arena(identity);                               // another rank's, read-only
//
// It is one file in memory without a name (not shared: plain memory), as large as may be needed and mapped as a whole, of
// which only what was handed out has pages. Blocks that come back keep their pages for the next one of their size, which is where much of
// the time of a training step on a CPU goes otherwise: the kernel fetching and clearing pages.
//
// What a child made by fork() writes is its own, and it gets no new blocks; a page that it has not written shows what
// the parent writes there later. A child that computes with tensors should copy them first.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "trireme/comm/engine/shm/free_ranges.h"
#include "trireme/core/fd.h"
#include "trireme/core/thread_annotations.h"

namespace trireme::comm::shm {

struct ProcessIdentity;

/// From any thread.
class Arena {
 public:
  struct Options {
    size_t capacity = 0;  ///< of addresses, not of memory; rounded up to pages
    size_t keep = 0;      ///< bytes of free blocks that keep their pages; less when blocks in use need new ones
    bool shared = true;   ///< false: for a process without neighbours. Nobody else can read it; its pages may be huge
  };

  /// SystemError: no file in memory, or no addresses for it.
  explicit Arena(const Options& options);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// The one whose tensors all groups of this process share; made by the first call, and never destroyed, because
  /// tensors may live until the very end. SystemError as above.
  static Arena& make_for_process(const Options& options);
  /// Null when it was not made, or not to be shared.
  static Arena* of_process();

  /// Whole pages with anything in them. Null when there is no room, or no memory to be had.
  void* allocate(size_t bytes);
  /// What allocate() gave.
  void release(void* block);

  bool contains(const void* data) const;
  /// Where the bytes lie, counted from the beginning of the arena; nothing when they lie elsewhere.
  std::optional<size_t> place_of(const void* data, size_t bytes) const;
  const std::byte* base() const { return base_; }
  size_t capacity() const { return capacity_; }
  int fd() const { return fd_.get(); }
  /// False in a forked child, whose blocks the other ranks cannot see.
  bool is_open() const { return open_; }
  /// Bytes handed out, and bytes that are free but keep their pages.
  size_t used() const;
  size_t kept() const;

 private:
  static void in_forked_child();
  std::optional<size_t> take(size_t size) TRIREME_REQUIRES(mutex_);
  void make_room(size_t size) TRIREME_REQUIRES(mutex_);
  size_t handed_out() const TRIREME_REQUIRES(mutex_) { return capacity_ - warm_.total() - cold_.total(); }
  bool fetch_pages(size_t place, size_t size) const;
  bool drop_pages(size_t place, size_t size) const;

  const size_t capacity_;
  const size_t keep_;
  UniqueFd fd_;  // none: not shared
  std::byte* base_;
  mutable Mutex mutex_;
  std::atomic<bool> open_ = true;               // false in a forked child, whose mutex nobody may ever release
  FreeRanges warm_ TRIREME_GUARDED_BY(mutex_);  // with pages
  FreeRanges cold_ TRIREME_GUARDED_BY(mutex_);  // without
  std::unordered_map<size_t, size_t> used_ TRIREME_GUARDED_BY(mutex_);  // size by place
};

/// The beginning of another process's arena, to be read: one mapping for all callers, and it stays for as long as one
/// of them holds it. Null when that process has no arena or it cannot be opened (the log says why). From any thread.
using ArenaView = std::shared_ptr<const std::byte>;
ArenaView open_arena(const ProcessIdentity& process);

/// The arenas of a group, as one of its ranks sees them.
struct Arenas {
  const Arena* mine = nullptr;
  std::vector<ArenaView> of_rank;  ///< empty: not all ranks have one; null: cannot be opened

  /// Whether the ranks tell each other where their tensors lie. The same on every rank.
  bool used() const { return !of_rank.empty(); }
  /// Where this rank's data lies, if everyone's can be read from here.
  std::optional<size_t> place_of(const void* data, size_t bytes) const;
};

/// Opens what the ranks offer.
Arenas open_arenas(const std::vector<ProcessIdentity>& ranks);

}  // namespace trireme::comm::shm
