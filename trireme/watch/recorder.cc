#include "trireme/watch/recorder.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <mutex>
#include <utility>

#include "trireme/core/env.h"
#include "trireme/core/text.h"
#include "trireme/watch/ring.h"

namespace trireme::watch {
namespace {

thread_local int64_t t_enqueued = 0;
std::atomic<bool> g_forked = false;  // this process is a child of the rank

struct Process {
  std::unique_ptr<Ring> ring;
  std::mutex groups;  // start_group() and end_group() of the ring

  std::mutex steps;                      // the three below
  bool sets_steps = false;               // the program calls set_step()
  const StepCounter* counter = nullptr;  // that counts; null: none yet
  int64_t counted = 0;                   // steps
  std::atomic<bool> step_due = false;    // the next forward or backward begins one
};

std::unique_ptr<Ring> find_ring() {
  const auto text = env::get_nonempty("TRIREME_WATCH_FD");
  const auto fd = text ? parse_int(*text, 3, std::numeric_limits<int>::max()) : std::nullopt;
  if (!fd) return nullptr;
  auto ring = Ring::map(static_cast<int>(*fd), Access::write);
  if (!ring) return nullptr;
  ::fcntl(static_cast<int>(*fd), F_SETFD, FD_CLOEXEC);  // not for the programs that this one starts
#ifdef PR_SET_PTRACER
  ::prctl(PR_SET_PTRACER, ring->launcher(), 0, 0, 0);  // it may ask a debugger where this process is stuck
#endif
  return ring;
}

// Never destroyed: groups may end after static objects have.
Process& process() {
  static auto* const only = [] {
    ::pthread_atfork(nullptr, nullptr, [] { g_forked = true; });  // cheaper than to ask for the pid in every call
    return new Process{.ring = find_ring(), .groups = {}, .steps = {}};
  }();
  return *only;
}

Ring* ring() {
  Process& self = process();
  return g_forked ? nullptr : self.ring.get();
}

bool on_main_thread() {
  thread_local const bool main = ::gettid() == ::getpid();
  return main;
}

template <size_t kLength>
void copy_text(char (&to)[kLength], const char* from) {
  std::memcpy(to, from, ::strnlen(from, kLength - 1));
}

CallRecord record_of(uint64_t group, const CallFacts& facts) {
  CallRecord call{.group = group,
                  .number = facts.number,
                  .elements = facts.elements,
                  .digest = facts.digest,
                  .bytes = facts.bytes,
                  .size_count = static_cast<uint32_t>(facts.size_count),
                  .root = facts.root,
                  .peer = facts.peer,
                  .blocking = on_main_thread() ? 1u : 0u,
                  .started = now_ns()};
  call.enqueued = t_enqueued != 0 ? t_enqueued : call.started;
  std::copy_n(facts.sizes.begin(), std::min(facts.sizes.size(), CallRecord::kSizes), call.sizes);
  copy_text(call.operation, facts.operation);
  copy_text(call.dtype, facts.dtype);
  copy_text(call.reduce, facts.reduce);
  return call;
}

void begin_due_step(Ring& mine, int64_t now) {
  Process& self = process();
  if (!self.step_due.exchange(false)) return;
  const std::lock_guard lock(self.steps);
  mine.set_step(++self.counted, now);
}

}  // namespace

Group::Group(std::string_view name, std::span<const int> ranks, int world_size) : id_(group_id(name)) {
  Ring* const mine = ring();
  if (!mine) return;
  const size_t number = name.rfind('#');  // "0-1#2": the third group of these ranks
  const auto again = parse_int(number == name.npos ? "" : name.substr(number + 1), 0, 1'000'000'000).value_or(0);
  const bool world = ranks.size() == static_cast<size_t>(world_size);
  GroupRecord record{.id = id_, .size = static_cast<uint32_t>(ranks.size()), .world = world ? 1u : 0u};
  record.again = static_cast<uint32_t>(again);
  for (const int rank : ranks) {
    const auto bit = static_cast<size_t>(rank);
    if (bit < GroupRecord::kMaxRank) record.members[bit / 64] |= uint64_t{1} << (bit % 64);
  }
  const std::lock_guard lock(process().groups);
  place_ = mine->start_group(record);
}

Group::~Group() {
  if (place_ < 0 || !ring()) return;
  const std::lock_guard lock(process().groups);
  ring()->end_group(place_);
}

Group::Group(Group&& other) noexcept : id_(other.id_), place_(std::exchange(other.place_, -1)) {}

Group& Group::operator=(Group&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(place_, other.place_);
  return *this;
}

Recording::Recording(const Group& group, const CallFacts& facts) {
  if (group.place() < 0) return;
  if (Ring* const mine = ring()) place_ = mine->start_call(record_of(group.id(), facts), group.place());
}

Recording::~Recording() {
  if (place_ < 0) return;
  if (Ring* const mine = ring()) mine->end_call(place_, now_ns());
}

EnqueuedAt::EnqueuedAt(int64_t when) {
  t_enqueued = when;
}
EnqueuedAt::~EnqueuedAt() {
  t_enqueued = 0;
}

PhaseScope::PhaseScope(Phase phase) : phase_(phase), before_(Phase::unknown) {
  Ring* const mine = ring();
  if (!mine) return;
  before_ = mine->phase();
  if (before_ == phase) return;
  started_ = now_ns();
  if (phase == Phase::forward || phase == Phase::backward) begin_due_step(*mine, started_);
  mine->set_phase(phase, started_);
}

PhaseScope::~PhaseScope() {
  Ring* const mine = ring();
  if (!mine || started_ == 0) return;
  const int64_t now = now_ns();
  mine->set_phase(before_, now);
  mine->append({.started = started_, .ended = now, .kind = EventKind::phase, .phase = phase_});
}

StepCounter::StepCounter(Source source) : source_(source) {
  if (!ring()) return;
  const std::lock_guard lock(process().steps);
  if (counts()) process().step_due = source_ == Source::backwards;
}

StepCounter::~StepCounter() {
  if (!ring()) return;
  const std::lock_guard lock(process().steps);
  if (process().counter == this) process().counter = nullptr;
}

bool StepCounter::counts() const {
  Process& self = process();
  if (self.sets_steps) return false;
  if (self.counter == nullptr || self.counter->source_ < source_) self.counter = this;
  return self.counter == this;
}

void StepCounter::begin_step() {
  Ring* const mine = ring();
  if (!mine) return;
  const std::lock_guard lock(process().steps);
  if (!counts()) return;
  process().step_due = false;
  mine->set_step(++process().counted, now_ns());
}

void StepCounter::end_step() {
  if (!ring()) return;
  const std::lock_guard lock(process().steps);
  if (counts()) process().step_due = true;
}

void report(std::string_view name, double value) {
  Ring* const mine = ring();
  if (!mine) return;
  const int64_t now = now_ns();
  EventRecord event{.started = now, .ended = now, .value = value, .kind = EventKind::value};
  std::copy_n(name.begin(), std::min(name.size(), sizeof event.name - 1), event.name);
  mine->append(event);
}

void set_step(int64_t step) {
  Ring* const mine = ring();
  if (!mine) return;
  const std::lock_guard lock(process().steps);
  process().sets_steps = true;
  process().step_due = false;
  mine->set_step(step, now_ns());
}

void set_goal(const Goal& goal) {
  if (Ring* const mine = ring()) mine->set_goal(goal);
}

void count_samples(int64_t samples) {
  if (Ring* const mine = ring()) mine->add_samples(samples);
}

}  // namespace trireme::watch
