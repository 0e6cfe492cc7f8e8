#include "trireme/comm/engine/shm/arena.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "trireme/comm/engine/shm/identity.h"
#include "trireme/comm/engine/shm/layout.h"
#include "trireme/comm/engine/shm/segment.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"

namespace trireme::comm::shm {
namespace {

constexpr size_t kPage = 4096;

Arena* g_arena = nullptr;  // of the process
std::mutex g_arena_mutex;

UniqueFd make_file(size_t capacity) {
  UniqueFd fd(::memfd_create("trireme-arena", MFD_CLOEXEC));
  if (!fd || ::fchmod(fd.get(), 0600) != 0 || ::ftruncate(fd.get(), static_cast<off_t>(capacity)) != 0)
    throw SystemError(errno, "cannot make a file in memory of up to {} bytes", capacity);
  return fd;
}

// Of a file, or plain memory where there is none.
std::byte* map_whole(int fd, size_t capacity, int protection) {
  const int kind = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* base = ::mmap(nullptr, capacity, protection, kind | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) throw SystemError(errno, "cannot map {} bytes of memory", capacity);
  return static_cast<std::byte*>(base);
}

}  // namespace

Arena::Arena(const Options& options)
    : capacity_(round_up(std::max<size_t>(options.capacity, 1), kPage)),
      keep_(options.keep),
      fd_(options.shared ? make_file(capacity_) : UniqueFd()),
      base_(map_whole(fd_.get(), capacity_, PROT_READ | PROT_WRITE)) {
  ::madvise(base_, capacity_, MADV_HUGEPAGE);  // where the administrator allows it
  cold_.insert(0, capacity_);
}

Arena::~Arena() {
  ::munmap(base_, capacity_);
}

Arena& Arena::make_for_process(const Options& options) {
  const std::lock_guard lock(g_arena_mutex);
  if (g_arena == nullptr) {
    g_arena = new Arena(options);
    ::pthread_atfork(nullptr, nullptr, &Arena::in_forked_child);
  }
  return *g_arena;
}

Arena* Arena::of_process() {
  const std::lock_guard lock(g_arena_mutex);
  return g_arena != nullptr && g_arena->fd_ ? g_arena : nullptr;
}

// The child's view of the same file becomes private: what it writes, the parent does not see. Only calls that are
// allowed between fork and exec; another thread of the parent may have held the mutex, so it is not taken.
void Arena::in_forked_child() {
  g_arena->open_ = false;
  if (!g_arena->fd_) return;
  static_cast<void>(::mmap(g_arena->base_, g_arena->capacity_, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, g_arena->fd_.get(), 0));
}

// Of a file asked for at once: no memory is an answer here, and a SIGBUS at the first touch. Plain memory comes when it is
// touched, by the thread that does.
bool Arena::fetch_pages(size_t place, size_t size) const {
  if (!fd_) return true;
#ifdef MADV_POPULATE_WRITE
  if (::madvise(base_ + place, size, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;  // EINVAL: a kernel before 5.14
#endif
  return ::fallocate(fd_.get(), 0, static_cast<off_t>(place), static_cast<off_t>(size)) == 0;
}

bool Arena::drop_pages(size_t place, size_t size) const {
  if (!fd_) return ::madvise(base_ + place, size, MADV_DONTNEED) == 0;
  return ::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(place),
                     static_cast<off_t>(size)) == 0;
}

// Free blocks of other sizes, none of which is large enough, give their pages back before new ones are fetched: as many
// as are in use, kept and wanted beyond the limit.
void Arena::make_room(size_t size) {
  const size_t wanted = handed_out() + warm_.total() + size;
  size_t excess = wanted > keep_ ? std::min(wanted - keep_, warm_.total()) : 0;
  while (excess > 0) {
    const size_t part = std::min(excess, warm_.largest());
    const size_t place = warm_.take(part).value();
    const bool dropped = drop_pages(place, part);
    (dropped ? cold_ : warm_).insert(place, part);
    if (!dropped) return;
    excess -= part;
  }
}

std::optional<size_t> Arena::take(size_t size) {
  if (const auto place = warm_.take(size)) return place;
  make_room(size);
  const auto place = cold_.take(size);
  if (!place || fetch_pages(*place, size)) return place;
  drop_pages(*place, size);  // some may have come
  cold_.insert(*place, size);
  return std::nullopt;
}

void* Arena::allocate(size_t bytes) {
  if (bytes == 0 || bytes > capacity_ || !open_) return nullptr;
  const size_t size = round_up(bytes, kPage);
  const std::lock_guard lock(mutex_);
  const auto place = take(size);
  if (!place) return nullptr;
  used_.emplace(*place, size);
  return base_ + *place;
}

void Arena::release(void* block) {
  if (!open_) return;
  const auto place = static_cast<size_t>(static_cast<std::byte*>(block) - base_);
  const std::lock_guard lock(mutex_);
  const auto found = used_.find(place);
  const size_t size = found->second;
  used_.erase(found);
  const bool cold = warm_.total() + size > keep_ && drop_pages(place, size);
  (cold ? cold_ : warm_).insert(place, size);
}

bool Arena::contains(const void* data) const {
  return data >= base_ && data < base_ + capacity_;
}

std::optional<size_t> Arena::place_of(const void* data, size_t bytes) const {
  if (!contains(data)) return std::nullopt;
  const auto place = static_cast<size_t>(static_cast<const std::byte*>(data) - base_);
  if (bytes > capacity_ - place) return std::nullopt;
  return place;
}

size_t Arena::used() const {
  const std::lock_guard lock(mutex_);
  return handed_out();
}

size_t Arena::kept() const {
  const std::lock_guard lock(mutex_);
  return warm_.total();
}

ArenaView open_arena(const ProcessIdentity& process) {
  static std::mutex mutex;
  static std::map<std::pair<pid_t, uint64_t>, std::weak_ptr<const std::byte>> views;
  if (process.arena_bytes == 0) return nullptr;
  const std::lock_guard lock(mutex);
  auto& known = views[{process.pid, process.start_time}];
  if (ArenaView view = known.lock()) return view;
  try {
    const UniqueFd fd = open_segment(fmt::format("/proc/{}/fd/{}", process.pid, process.arena_fd));
    const ArenaView view(map_whole(fd.get(), process.arena_bytes, PROT_READ),
                         [bytes = process.arena_bytes](std::byte* base) { ::munmap(base, bytes); });
    known = view;
    return view;
  } catch (const Error& error) {
    log_debug("the tensors of process {} are not read in place: {}", process.pid, error.what());
    return nullptr;
  }
}

std::optional<size_t> Arenas::place_of(const void* data, size_t bytes) const {
  const bool all = std::all_of(of_rank.begin(), of_rank.end(), [](const auto& view) { return view != nullptr; });
  return mine != nullptr && all ? mine->place_of(data, bytes) : std::nullopt;
}

Arenas open_arenas(const std::vector<ProcessIdentity>& ranks) {
  Arenas arenas;
  if (std::any_of(ranks.begin(), ranks.end(), [](const auto& rank) { return rank.arena_bytes == 0; })) return arenas;
  arenas.mine = Arena::of_process();
  for (const ProcessIdentity& rank : ranks) arenas.of_rank.push_back(open_arena(rank));
  return arenas;
}

}  // namespace trireme::comm::shm
