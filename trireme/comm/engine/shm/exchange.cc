#include "trireme/comm/engine/shm/exchange.h"

#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "trireme/comm/engine/shm/futex.h"
#include "trireme/comm/engine/shm/identity.h"
#include "trireme/core/error.h"

namespace trireme::shm {
namespace {

constexpr Millis kSlice{50};
constexpr int kSpins = 2000;  // about 50 us: what falling asleep and waking up would cost
constexpr int kSpinsPerYield = 100;

int64_t millis_since(Clock::time_point begin) {
  return std::chrono::duration_cast<Millis>(Clock::now() - begin).count();
}

// Counts a sleeper for as long as it may sleep.
class Sleeper {
 public:
  explicit Sleeper(std::atomic<uint32_t>& sleepers) : sleepers_(sleepers) { sleepers_.fetch_add(1); }
  ~Sleeper() { sleepers_.fetch_sub(1); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

 private:
  std::atomic<uint32_t>& sleepers_;
};

}  // namespace

int spin_budget(int ranks, size_t processors) {
  return static_cast<size_t>(ranks) <= processors ? kSpins : 0;
}

// Who has claimed the place writes the text in microseconds, or is dead.
std::string abort_reason(const SegmentHeader& header) {
  const Deadline deadline = Deadline::in(kSlice);
  while (header.abort_state == SegmentHeader::claimed && !deadline.passed()) ::sched_yield();
  return header.abort_state == SegmentHeader::written ? header.abort_reason : "a rank has aborted the group";
}

Exchange::Exchange(std::shared_ptr<Segment> segment, RankInfo me, Options options)
    : segment_(std::move(segment)),
      me_(me),
      options_(std::move(options)),
      round_(segment_->control(me.rank).published),
      operations_(static_cast<size_t>(me.size)) {
  ControlBlock& mine = segment_->control(me_.rank);
  mine.start_time = start_time_of(::getpid()).value_or(0);
  mine.pid = ::getpid();
}

Exchange::~Exchange() {
  ControlBlock& mine = segment_->control(me_.rank);
  mine.left = 1;
  futex_wake_all(mine.published);
}

Exchange::Turn Exchange::begin(Operation operation) {
  Turn turn(turn_, std::try_to_lock);
  if (!turn)
    throw UsageError("rank {}: two threads are in one {}; it runs one operation at a time, so queue them",
                     called(me_.rank), operation.kind == Kind::message ? "channel" : "group");
  throw_if_failed();
  operation.sequence = operation_.sequence + 1;
  operation_ = operation;
  begun_ = Clock::now();
  first_round_ = true;
  ControlBlock& mine = segment_->control(me_.rank);
  mine.begun.store(operation.sequence, std::memory_order_relaxed);
  mine.operations[(round_ + 1) % 2] = operation;
  stop_if_aborted();
  return turn;
}

void Exchange::sync() {
  publish();
  for (int rank = 0; rank < me_.size; ++rank) await(rank);
  if (first_round_) compare_operations();
  first_round_ = false;
}

void Exchange::publish() {
  ControlBlock& mine = segment_->control(me_.rank);
  mine.published.store(++round_);
  if (mine.sleepers.load() != 0) futex_wake_all(mine.published);
}

bool Exchange::arrived(int rank) const {
  return static_cast<int32_t>(segment_->control(rank).published.load() - round_) >= 0;
}

// Where two ranks have come to share a processor, each would spin away the other's time: yielding lets the other come,
// and leaves both runnable, by which the kernel sees that they belong on two.
void Exchange::await(int rank) {
  for (int i = 0; i <= options_.spins; ++i) {
    if (arrived(rank)) return;
    if (i % kSpinsPerYield == kSpinsPerYield - 1)
      ::sched_yield();
    else
      relax();
  }
  sleep_until_arrival(rank);
}

// Looks around by the clock, not after a sleep that was long enough: signals may cut every sleep short.
void Exchange::sleep_until_arrival(int rank) {
  ControlBlock& theirs = segment_->control(rank);
  const Sleeper sleeper(theirs.sleepers);
  const Deadline deadline = Deadline::at(begun_ + options_.timeout);
  Deadline look = Deadline::in(kSlice);
  for (;;) {
    const uint32_t seen = theirs.published.load();
    if (static_cast<int32_t>(seen - round_) >= 0) return;
    if (aborted() != nullptr && !arrived(rank)) stop_if_aborted();  // who has come may be the one to tell why
    futex_wait(theirs.published, seen, earlier(look, deadline).left());
    if (deadline.passed()) stop_if_late(rank);
    if (!look.passed() && theirs.left == 0) continue;
    stop_if_anyone_is_gone();
    look = Deadline::in(kSlice);
  }
}

const SegmentHeader* Exchange::aborted() const {
  for (const Segment* segment : {static_cast<const Segment*>(segment_.get()), options_.above.get()})
    if (segment != nullptr && segment->header().abort_state != SegmentHeader::running) return &segment->header();
  return nullptr;
}

void Exchange::stop_if_aborted() {
  const SegmentHeader* header = aborted();
  if (header != nullptr) fail(abort_reason(*header));
}

// Looks at arrivals once more after the bad news: who has published its part before it went has done it.
void Exchange::stop_if_anyone_is_gone() {
  for (int rank = 0; rank < me_.size; ++rank) {
    const ControlBlock& theirs = segment_->control(rank);
    const pid_t pid = theirs.pid;
    if (arrived(rank) || pid == 0) continue;
    const bool left = theirs.left != 0;
    const bool dead = !left && !is_alive(pid, theirs.start_time);
    if ((!left && !dead) || arrived(rank)) continue;
    stop_if_aborted();  // who left may have done so because of it
    fail(fmt::format("rank {} (process {}) {} after it had begun #{}; look at its own output for the cause",
                     called(rank), pid, left ? "left the group" : "died", theirs.begun.load()));
  }
}

void Exchange::stop_if_late(int missing) {
  stop_if_anyone_is_gone();
  if (arrived(missing)) return;
  const ControlBlock& theirs = segment_->control(missing);
  fail(fmt::format(
      "timeout of {} ms: rank {} (process {}) lives but has not come, the last it began is #{}; is it slow, "
      "stopped, or in another collective? a longer timeout is an option of the group",
      std::chrono::duration_cast<Millis>(options_.timeout).count(), called(missing), theirs.pid.load(),
      theirs.begun.load()));
}

void Exchange::compare_operations() {
  for (int rank = 0; rank < me_.size; ++rank)
    operations_[static_cast<size_t>(rank)] = segment_->control(rank).operations[round_ % 2];
  const auto mismatch = find_mismatch(operations_, options_.names);
  if (!mismatch) return;
  set_failure(*mismatch);
  throw UsageError("{}", *mismatch);
}

void Exchange::disagree(const std::string& what) {
  set_failure(fmt::format("{}: {}", describe(operation_), what));
  throw UsageError("{}", failure_);
}

void Exchange::abort(std::string_view reason) {
  announce_abort(fmt::format("rank {} aborted the group: {}", called(me_.rank), reason));
}

void Exchange::announce_abort(std::string_view reason) {
  SegmentHeader& header = segment_->header();
  uint32_t expected = SegmentHeader::running;
  if (!header.abort_state.compare_exchange_strong(expected, SegmentHeader::claimed)) return;
  const size_t size = std::min(reason.size(), kReasonSize - 1);
  std::memcpy(header.abort_reason, reason.data(), size);
  header.abort_state = SegmentHeader::written;
  for (int rank = 0; rank < me_.size; ++rank) futex_wake_all(segment_->control(rank).published);
}

std::string Exchange::where() const {
  return fmt::format("rank {}: {}, after {} ms", called(me_.rank), describe(operation_), millis_since(begun_));
}

void Exchange::fail(const std::string& reason) {
  announce_abort(reason);
  set_failure(fmt::format("{}: {}", where(), reason));
  throw PeerError("{}", failure_);
}

void Exchange::set_failure(const std::string& text) {
  failure_ = text;
  failed_ = true;
}

void Exchange::throw_if_failed() const {
  if (failed_) throw PeerError("{}", failure_);
}

}  // namespace trireme::shm
