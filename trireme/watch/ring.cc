#include "trireme/watch/ring.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "trireme/core/clock.h"
#include "trireme/core/error.h"

namespace trireme::watch {
namespace detail {

constexpr uint64_t kMagic = 0x33676e6972697274;  // "triring3"; another layout gets another number
constexpr int kReadAttempts = 4;                 // a reader never waits for a writer

/// A value under a sequence lock. Atomic words, so that a read during a write is defined, though useless.
template <typename T>
class Slot {
 public:
  bool try_lock() {
    uint32_t version = version_.load(std::memory_order_relaxed);
    return version % 2 == 0 && version_.compare_exchange_strong(version, version + 1, std::memory_order_acquire);
  }
  void write(const T& value) {
    std::atomic_thread_fence(std::memory_order_release);
    const auto words = std::bit_cast<Words>(value);
    for (size_t i = 0; i < words.size(); ++i) words_[i].store(words[i], std::memory_order_relaxed);
  }
  T read_unchecked() const {
    Words words{};
    for (size_t i = 0; i < words.size(); ++i) words[i] = words_[i].load(std::memory_order_relaxed);
    return std::bit_cast<T>(words);
  }
  void unlock() { version_.fetch_add(1, std::memory_order_release); }
  std::optional<T> read() const {
    for (int attempt = 0; attempt < kReadAttempts; ++attempt) {
      const uint32_t before = version_.load(std::memory_order_acquire);
      const T value = read_unchecked();
      std::atomic_thread_fence(std::memory_order_acquire);
      if (before % 2 == 0 && version_.load(std::memory_order_relaxed) == before) return value;
    }
    return std::nullopt;
  }

 private:
  static_assert(sizeof(T) % sizeof(uint64_t) == 0);
  using Words = std::array<uint64_t, sizeof(T) / sizeof(uint64_t)>;
  std::atomic<uint32_t> version_;
  std::array<std::atomic<uint64_t>, sizeof(T) / sizeof(uint64_t)> words_;
};

struct GroupSlot {
  Slot<GroupRecord> record;
  std::atomic<uint64_t> begun;
};

}  // namespace detail

namespace {

template <size_t kLength>
void terminate(char (&text)[kLength]) {
  text[kLength - 1] = '\0';
}

EventRecord event_of(const CallRecord& call) {
  EventRecord event{.started = call.started,
                    .ended = call.ended,
                    .group = call.group,
                    .call = call.number,
                    .bytes = call.bytes,
                    .kind = EventKind::call,
                    .blocking = call.blocking,
                    .peer = call.peer};
  static_assert(sizeof event.name == sizeof call.operation);
  std::memcpy(event.name, call.operation, sizeof event.name);
  return event;
}

// What the rank wrote, in range.
EventRecord cleaned(EventRecord event) {
  terminate(event.name);
  if (event.kind > EventKind::value) event.kind = EventKind::none;
  if (event.phase > Phase::save) event.phase = Phase::unknown;
  event.started = std::min(event.started, event.ended);
  return event;
}

bool alive(int pid) {
  return ::kill(pid, 0) == 0 || errno == EPERM;
}

bool is_sealed(int fd) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0;
}

}  // namespace

using detail::GroupSlot;
using detail::kMagic;
using detail::Slot;

// A new file is all zeros, which is a valid, empty state of every field.
struct Ring::Layout {
  uint64_t magic;
  int32_t launcher;
  int32_t rank;
  std::atomic<int32_t> owner;
  std::atomic<int64_t> step_plus_one;
  std::atomic<int64_t> phase_since;
  std::atomic<uint32_t> phase;
  std::atomic<uint64_t> next_call;
  std::array<detail::GroupSlot, Ring::kGroups> groups;
  std::array<detail::Slot<CallRecord>, Ring::kCalls> calls;
  std::atomic<int64_t> samples;
  detail::Slot<Goal> goal;
  std::atomic<uint64_t> next_event;
  std::array<detail::Slot<EventRecord>, Ring::kEvents> events;
};

const char* words_of(Phase phase) {
  switch (phase) {
    case Phase::data:
      return "loading data";
    case Phase::forward:
      return "in the forward pass";
    case Phase::backward:
      return "in the backward pass";
    case Phase::optimizer:
      return "in the optimizer";
    case Phase::evaluation:
      return "evaluating";
    case Phase::save:
      return "saving";
    case Phase::unknown:
      break;
  }
  return "";
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

uint64_t group_id(std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash == 0 ? 1 : hash;
}

UniqueFd make_ring_file(int rank) {
  UniqueFd file(::memfd_create(kRingFile, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const int32_t self = ::getpid();
  const int32_t number = rank;
  if (!file || ::ftruncate(file.get(), sizeof(Ring::Layout)) != 0 ||
      ::pwrite(file.get(), &kMagic, sizeof kMagic, offsetof(Ring::Layout, magic)) != sizeof kMagic ||
      ::pwrite(file.get(), &self, sizeof self, offsetof(Ring::Layout, launcher)) != sizeof self ||
      ::pwrite(file.get(), &number, sizeof number, offsetof(Ring::Layout, rank)) != sizeof number ||
      ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    throw SystemError(errno, "cannot make the memory that a rank shares with its launcher");
  return file;
}

std::unique_ptr<Ring> Ring::map(int fd, Access access) {
  struct stat facts {};
  if (::fstat(fd, &facts) != 0 || facts.st_size != sizeof(Layout) || !is_sealed(fd)) return nullptr;
  const int protection = access == Access::write ? PROT_READ | PROT_WRITE : PROT_READ;
  void* memory = ::mmap(nullptr, sizeof(Layout), protection, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return nullptr;
  std::unique_ptr<Ring> ring(new Ring(static_cast<Layout*>(memory)));
  if (ring->layout_->magic != kMagic) return nullptr;
  if (access == Access::read) return ring;
  // A program that a rank starts inherits the file; it must not write into its parent's record.
  int32_t owner = ring->layout_->owner.load();
  const int32_t self = ::getpid();
  if (owner != self && owner != 0 && alive(owner)) return nullptr;
  return ring->layout_->owner.compare_exchange_strong(owner, self) ? std::move(ring) : nullptr;
}

Ring::~Ring() {
  ::munmap(layout_, sizeof(Layout));
}

// --- the rank's side

int Ring::start_group(const GroupRecord& group) {
  const auto find = [&](auto suits) {
    for (size_t i = 0; i < kGroups; ++i) {
      const size_t place = (next_group_ + i) % kGroups;  // not the one that was released last
      if (suits(layout_->groups[place].record.read_unchecked())) return static_cast<int>(place);
    }
    return -1;
  };
  int place = find([](const GroupRecord& old) { return old.id == 0; });
  if (place < 0) place = find([](const GroupRecord& old) { return old.released != 0; });
  if (place < 0) return -1;
  GroupSlot& slot = layout_->groups[static_cast<size_t>(place)];
  if (!slot.record.try_lock()) return -1;
  slot.begun.store(0, std::memory_order_relaxed);
  slot.record.write(group);
  slot.record.unlock();
  next_group_ = static_cast<size_t>(place) + 1;
  return place;
}

void Ring::end_group(int place) {
  if (place < 0) return;
  Slot<GroupRecord>& slot = layout_->groups[static_cast<size_t>(place)].record;
  if (!slot.try_lock()) return;
  GroupRecord group = slot.read_unchecked();
  group.released = 1;
  slot.write(group);
  slot.unlock();
}

int Ring::start_call(const CallRecord& call, int group_place) {
  if (group_place < 0) return -1;
  // Also without a free place: a collective that does not count as begun would be taken for one that others wait for.
  if (call.peer < 0)
    layout_->groups[static_cast<size_t>(group_place)].begun.store(call.number + 1, std::memory_order_release);
  for (size_t attempt = 0; attempt < kCalls; ++attempt) {
    const size_t place = layout_->next_call.fetch_add(1, std::memory_order_relaxed) % kCalls;
    Slot<CallRecord>& slot = layout_->calls[place];
    if (slot.read_unchecked().open() || !slot.try_lock()) continue;
    slot.write(call);
    slot.unlock();
    return static_cast<int>(place);
  }
  return -1;
}

void Ring::end_call(int place, int64_t when) {
  if (place < 0) return;
  Slot<CallRecord>& slot = layout_->calls[static_cast<size_t>(place)];
  if (!slot.try_lock()) return;
  CallRecord call = slot.read_unchecked();
  call.ended = when;
  slot.write(call);
  slot.unlock();
  append(event_of(call));
}

void Ring::append(EventRecord event) {
  event.number = layout_->next_event.fetch_add(1, std::memory_order_relaxed) + 1;
  event.step = step();
  Slot<EventRecord>& slot = layout_->events[(event.number - 1) % kEvents];
  if (!slot.try_lock()) return;  // a thread that was stopped for a whole turn of the table holds it
  slot.write(event);
  slot.unlock();
}

void Ring::set_phase(Phase phase, int64_t when) {
  layout_->phase_since.store(when, std::memory_order_relaxed);
  layout_->phase.store(static_cast<uint32_t>(phase), std::memory_order_release);
}

void Ring::set_step(int64_t step, int64_t when) {
  layout_->step_plus_one.store(step + 1, std::memory_order_relaxed);
  append({.started = when, .ended = when, .kind = EventKind::step});
}

void Ring::set_goal(const Goal& goal) {
  if (!layout_->goal.try_lock()) return;  // another thread sets it now
  layout_->goal.write(goal);
  layout_->goal.unlock();
}

void Ring::add_samples(int64_t samples) {
  layout_->samples.fetch_add(samples, std::memory_order_relaxed);
}

int Ring::launcher() const {
  return layout_->launcher;
}

// --- the launcher's side

int Ring::rank() const {
  return layout_->rank;
}

int Ring::owner() const {
  return std::max(0, layout_->owner.load());
}

int64_t Ring::step() const {
  return layout_->step_plus_one.load(std::memory_order_relaxed) - 1;
}

Goal Ring::goal() const {
  return layout_->goal.read().value_or(Goal{});
}

Phase Ring::phase() const {
  const uint32_t phase = layout_->phase.load(std::memory_order_acquire);
  return phase <= static_cast<uint32_t>(Phase::save) ? static_cast<Phase>(phase) : Phase::unknown;
}

int64_t Ring::phase_since() const {
  return layout_->phase_since.load(std::memory_order_relaxed);
}

int64_t Ring::last_event() const {
  const uint64_t end = layout_->next_event.load(std::memory_order_acquire);
  const auto newest = end == 0 ? std::nullopt : layout_->events[(end - 1) % kEvents].read();
  return std::max(phase_since(), newest ? newest->ended : 0);
}

std::vector<GroupProgress> Ring::groups() const {
  std::vector<GroupProgress> all;
  for (const GroupSlot& slot : layout_->groups) {
    const auto group = slot.record.read();
    if (group && group->id != 0) all.push_back({*group, slot.begun.load(std::memory_order_acquire)});
  }
  return all;
}

std::vector<CallRecord> Ring::calls() const {
  std::vector<CallRecord> all;
  for (const Slot<CallRecord>& slot : layout_->calls) {
    auto call = slot.read();
    if (!call || call->started == 0) continue;
    terminate(call->operation);
    terminate(call->dtype);
    terminate(call->reduce);
    all.push_back(*call);
  }
  return all;
}

int64_t Ring::samples() const {
  return layout_->samples.load(std::memory_order_relaxed);
}

NewEvents Ring::events_since(uint64_t next) const {
  constexpr uint64_t kUnfinished = 64;  // an event that so many others have overtaken will not be written any more
  const uint64_t end = layout_->next_event.load(std::memory_order_acquire);
  NewEvents found{.events = {}, .next = std::min(next, end), .lost = 0};
  const uint64_t oldest = end > kEvents ? end - kEvents : 0;
  if (found.next < oldest) found.lost = oldest - std::exchange(found.next, oldest);
  for (; found.next < end; ++found.next) {
    const auto event = layout_->events[found.next % kEvents].read();
    if (event && event->number == found.next + 1) {
      found.events.push_back(cleaned(*event));
      continue;
    }
    const bool unfinished = !event || event->number <= found.next;
    if (unfinished && end - found.next < kUnfinished) break;
    ++found.lost;
  }
  return found;
}

}  // namespace trireme::watch
