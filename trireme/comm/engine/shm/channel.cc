#include "trireme/comm/engine/shm/channel.h"

#include <fmt/core.h>

#include "trireme/comm/engine/shm/collectives.h"
#include "trireme/comm/engine/shm/identity.h"
#include "trireme/core/error.h"
#include "trireme/core/thread_annotations.h"

namespace trireme::comm::shm {
namespace {

constexpr Millis kAskAgain{50};

// What ends a meeting from outside.
class Interruption : public PeerError {
 public:
  using PeerError::PeerError;
};

}  // namespace

/// One direction. The exchange's own turn would not cover its opening, hence a second lock.
class Channel {
 public:
  Channel(const Channels::Options& options, int from, int to)
      : options_(options), from_(from), to_(to), peer_(options.me.rank == from ? to : from) {}

  void transfer(const Operation& call, std::byte* data) {
    if (!mutex_.try_lock())
      throw UsageError("rank {}: two threads use the channel from rank {} to rank {}; queue their messages",
                       called(options_.me.rank), called(from_), called(to_));
    const std::lock_guard lock(mutex_, std::adopt_lock);
    if (!exchange_) open();
    Operation message = call;
    message.root = 0;
    message.to = 1;
    message.sequence = ++messages_;
    exchange_->begin(message);
    run_broadcast(*exchange_, data, call.dims.elements * size_of(call.dtype), 0);
  }

 private:
  RankInfo me() const { return {options_.me.rank == from_ ? 0 : 1, 2}; }
  int called(int rank) const { return comm::called(options_.names, rank); }

  void open() TRIREME_REQUIRES(mutex_) {
    const auto segment = meet_other_end();
    for (const int end : {0, 1}) record_process(*segment, end, end == 0 ? from_ : to_);
    exchange_ = std::make_unique<Exchange>(segment, me(),
                                           Exchange::Options{.timeout = options_.timeout,
                                                             .spins = options_.spins,
                                                             .names = {called(from_), called(to_)},
                                                             .above = options_.group});
  }

  // An end that dies before its first message is missed by these numbers too.
  void record_process(const Segment& segment, int end, int rank) const {
    const ControlBlock& known = options_.group->control(rank);
    segment.control(end).start_time = known.start_time.load();
    segment.control(end).pid = known.pid.load();
  }

  std::shared_ptr<Segment> meet_other_end() const {
    const std::string prefix = fmt::format("{}channel/{}/{}/", options_.prefix, from_, to_);
    const Shape shape{2, round_up(std::max<size_t>(1, options_.piece_bytes), 128)};
    const auto begin = Clock::now();
    try {
      return meet(*options_.store, prefix, me(), shape, options_.files,
                  [&](const std::string& key) { return wait_for(key, begin); });
    } catch (const Interruption&) {
      throw;
    } catch (const PeerError& error) {
      throw PeerError("no channel from rank {} to rank {}, which are its ranks 0 and 1: {}", called(from_), called(to_),
                      error.what());
    }
  }

  std::string wait_for(const std::string& key, Clock::time_point begin) const {
    const Deadline deadline = Deadline::at(begin + options_.timeout);
    for (;;) {
      if (const auto value = options_.store->try_get(key)) return *value;  // throws where a lost store is the reason
      stop_if_interrupted();
      if (deadline.passed())
        blame_peer(fmt::format("rank {} lives but has not come to the first message", called(peer_)));
      const Deadline slice = earlier(Deadline::in(kAskAgain), deadline);
      try {
        return options_.store->get(key, slice);
      } catch (const PeerError&) {
        if (!slice.passed()) throw;
      }
    }
  }

  // The abort is read last and reported first: a rank may have left because of it.
  void stop_if_interrupted() const {
    const ControlBlock& theirs = options_.group->control(peer_);
    const pid_t pid = theirs.pid;
    const bool left = theirs.left != 0;
    const bool dead = !left && pid != 0 && !is_alive(pid, theirs.start_time);
    const SegmentHeader& header = options_.group->header();
    if (header.abort_state != SegmentHeader::running) stop(abort_blame(header));
    if (left) blame_peer(fmt::format("rank {} (process {}) left the group", called(peer_), pid));
    if (dead)
      blame_peer(fmt::format("rank {} (process {}) died; look at its own output for the cause", called(peer_), pid));
  }

  [[noreturn]] void blame_peer(std::string reason) const { stop({called(peer_), std::move(reason)}); }
  [[noreturn]] static void stop(const Blame& blame) {
    throw Interruption(PeerError::Facts{.rank = blame.rank, .reason = blame.reason});
  }

  const Channels::Options& options_;
  const int from_;
  const int to_;
  const int peer_;
  Mutex mutex_;
  std::unique_ptr<Exchange> exchange_ TRIREME_GUARDED_BY(mutex_);
  uint64_t messages_ TRIREME_GUARDED_BY(mutex_) = 0;
};

Channels::Channels(Options options) : options_(std::move(options)) {}

Channels::~Channels() = default;

void Channels::transfer(const Operation& call, std::byte* data) {
  channel(call.root, call.to).transfer(call, data);
}

Channel& Channels::channel(int from, int to) {
  const std::lock_guard lock(mutex_);
  auto& place = channels_[{from, to}];
  if (!place) place = std::make_unique<Channel>(options_, from, to);
  return *place;
}

}  // namespace trireme::comm::shm
