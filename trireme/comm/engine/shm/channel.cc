#include "trireme/comm/engine/shm/channel.h"

#include <fmt/core.h>

#include "trireme/comm/engine/shm/collectives.h"
#include "trireme/comm/engine/shm/identity.h"
#include "trireme/core/error.h"

namespace trireme::shm {
namespace {

constexpr Millis kAskAgain{50};

// What ends a meeting from outside. It names the ranks as the caller knows them.
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

  void transfer(std::byte* data, size_t elements, DType dtype) {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock)
      throw UsageError("rank {}: two threads use the channel from rank {} to rank {}; queue their messages",
                       options_.me.rank, from_, to_);
    try {
      if (!exchange_) open();
      const auto turn = exchange_->begin({.kind = Kind::message, .dtype = dtype, .root = from_, .elements = elements});
      run_broadcast(*exchange_, data, elements * size_of(dtype), 0);
    } catch (const Error& error) {
      options_.on_failure(error.what());
      throw;
    }
  }

 private:
  RankInfo me() const { return {options_.me.rank == from_ ? 0 : 1, 2}; }

  void open() {
    const auto segment = meet_other_end();
    for (const int end : {0, 1}) record_process(*segment, end, end == 0 ? from_ : to_);
    exchange_ = std::make_unique<Exchange>(
        segment, me(),
        Exchange::Options{
            .timeout = options_.timeout, .spins = options_.spins, .names = {from_, to_}, .above = options_.group});
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
      return meet(options_.store, prefix, me(), shape, options_.files,
                  [&](const std::string& key) { return wait_for(key, begin); });
    } catch (const Interruption&) {
      throw;
    } catch (const PeerError& error) {
      throw PeerError("no channel from rank {} to rank {}, which are its ranks 0 and 1: {}", from_, to_, error.what());
    }
  }

  std::string wait_for(const std::string& key, Clock::time_point begin) const {
    const Deadline deadline = Deadline::at(begin + options_.timeout);
    for (;;) {
      if (const auto value = options_.store.try_get(key)) return *value;  // throws where a lost store is the reason
      stop_if_interrupted(begin);
      if (deadline.passed()) stop(begin, "it lives but has not come");
      const Deadline slice = earlier(Deadline::in(kAskAgain), deadline);
      try {
        return options_.store.get(key, slice);
      } catch (const PeerError&) {
        if (!slice.passed()) throw;
      }
    }
  }

  // The abortion is looked at last and reported first: who left may have done so because of it.
  void stop_if_interrupted(Clock::time_point begin) const {
    const ControlBlock& theirs = options_.group->control(peer_);
    const pid_t pid = theirs.pid;
    const bool left = theirs.left != 0;
    const bool dead = !left && pid != 0 && !is_alive(pid, theirs.start_time);
    const SegmentHeader& header = options_.group->header();
    if (header.abort_state != SegmentHeader::running) stop(begin, abort_reason(header));
    if (left) stop(begin, fmt::format("rank {} (process {}) left the group", peer_, pid));
    if (dead) stop(begin, fmt::format("rank {} (process {}) died; look at its own output for the cause", peer_, pid));
  }

  [[noreturn]] void stop(Clock::time_point begin, std::string_view reason) const {
    throw Interruption("rank {}: first message from rank {} to rank {}, waiting for rank {} for {} ms: {}",
                       options_.me.rank, from_, to_, peer_,
                       std::chrono::duration_cast<Millis>(Clock::now() - begin).count(), reason);
  }

  const Channels::Options& options_;
  const int from_;
  const int to_;
  const int peer_;
  std::mutex mutex_;
  std::unique_ptr<Exchange> exchange_;  // GUARDED_BY(mutex_)
};

Channels::Channels(Options options) : options_(std::move(options)) {}

Channels::~Channels() = default;

void Channels::check_peer(const char* verb, int peer) const {
  const RankInfo me = options_.me;
  if (peer == me.rank) throw UsageError("rank {}: {} rank {}, which is itself; copy instead", me.rank, verb, peer);
  if (peer < 0 || peer >= me.size)
    throw UsageError("rank {}: {} rank {}, but the group has ranks 0 to {}", me.rank, verb, peer, me.size - 1);
}

Channel& Channels::channel(int from, int to) {
  const std::lock_guard lock(mutex_);
  auto& place = channels_[{from, to}];
  if (!place) place = std::make_unique<Channel>(options_, from, to);
  return *place;
}

void Channels::send(const void* data, size_t elements, DType dtype, int to) {
  check_peer("send to", to);
  auto* bytes = static_cast<std::byte*>(const_cast<void*>(data));  // the root of a broadcast only reads
  channel(options_.me.rank, to).transfer(bytes, elements, dtype);
}

void Channels::recv(void* data, size_t elements, DType dtype, int from) {
  check_peer("recv from", from);
  channel(from, options_.me.rank).transfer(static_cast<std::byte*>(data), elements, dtype);
}

}  // namespace trireme::shm
