#include "trireme/comm/engine/shm/exchange.h"

#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "trireme/comm/engine/shm/futex.h"
#include "trireme/comm/engine/shm/identity.h"
#include "trireme/core/error.h"

namespace trireme::comm::shm {
namespace {

constexpr Millis kSlice{50};
constexpr int kSpins = 2000;  // about 50 us: what falling asleep and waking up would cost
constexpr int kSpinsPerYield = 100;

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

// The rank that claimed the place writes the text in microseconds, or is dead.
Blame abort_blame(const SegmentHeader& header) {
  const Deadline deadline = Deadline::in(kSlice);
  while (header.abort_state == SegmentHeader::claimed && !deadline.passed()) ::sched_yield();
  if (header.abort_state != SegmentHeader::written) return {.reason = "a rank has aborted the group"};
  return {.rank = header.abort_rank < 0 ? std::nullopt : std::optional(header.abort_rank),
          .reason = header.abort_reason};
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

void Exchange::begin(const Operation& operation) {
  operation_ = operation;
  begun_ = Clock::now();
  first_round_ = true;
  ControlBlock& mine = segment_->control(me_.rank);
  mine.begun.store(operation.sequence, std::memory_order_relaxed);
  mine.operations[(round_ + 1) % 2] = operation;
  stop_if_aborted();
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

// Where two ranks share a processor, each would spin away the other's time: yielding lets the other run,
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
    if (aborted() != nullptr && !arrived(rank)) stop_if_aborted();
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

void Exchange::stop_if_aborted() const {
  const SegmentHeader* header = aborted();
  if (header != nullptr) throw error_of(abort_blame(*header));
}

// Looks at arrivals once more after the bad news: a rank that published its part before it went has done it.
void Exchange::stop_if_anyone_is_gone() const {
  for (int rank = 0; rank < me_.size; ++rank) {
    const ControlBlock& theirs = segment_->control(rank);
    const pid_t pid = theirs.pid;
    if (arrived(rank) || pid == 0) continue;
    const bool left = theirs.left != 0;
    const bool dead = !left && !is_alive(pid, theirs.start_time);
    if ((!left && !dead) || arrived(rank)) continue;
    stop_if_aborted();  // the abort may be why it left
    throw error_of({called(rank),
                    fmt::format("rank {} (process {}) {} after it had begun #{}; look at its own output for the cause",
                                called(rank), pid, left ? "left the group" : "died", theirs.begun.load())});
  }
}

void Exchange::stop_if_late(int missing) const {
  stop_if_anyone_is_gone();
  if (arrived(missing)) return;
  const ControlBlock& theirs = segment_->control(missing);
  throw error_of(
      {called(missing),
       fmt::format("timeout of {} ms: rank {} (process {}) lives but has not come, the last it began is #{}; is it "
                   "slow, stopped, or in another collective? a longer timeout is an option of the group",
                   std::chrono::duration_cast<Millis>(options_.timeout).count(), called(missing), theirs.pid.load(),
                   theirs.begun.load())});
}

void Exchange::compare_operations() {
  for (int rank = 0; rank < me_.size; ++rank)
    operations_[static_cast<size_t>(rank)] = segment_->control(rank).operations[round_ % 2];
  if (const auto mismatch = find_mismatch(operations_, options_.names)) throw Disagreement("{}", *mismatch);
}

void Exchange::abort(const Blame& blame) {
  SegmentHeader& header = segment_->header();
  uint32_t expected = SegmentHeader::running;
  if (!header.abort_state.compare_exchange_strong(expected, SegmentHeader::claimed)) return;
  header.abort_rank = blame.rank.value_or(-1);
  const size_t size = std::min(blame.reason.size(), kReasonSize - 1);
  std::memcpy(header.abort_reason, blame.reason.data(), size);
  header.abort_state = SegmentHeader::written;
  for (int rank = 0; rank < me_.size; ++rank) futex_wake_all(segment_->control(rank).published);
}

}  // namespace trireme::comm::shm
