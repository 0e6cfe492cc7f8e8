// Messages from one rank of a group to another, beside its collectives.
//
//   Channels channels({.store = store, .prefix = "shm/world/", .group = segment, .me = {0, 2}});
//   const Operation message{.kind = Kind::message, .dtype = DType::f32, .root = 0, .to = 1, .dims = 1000};
//   channels.transfer(message, data);                     // on both ranks
//
// Words
//   channel    one direction between two ranks: a segment for two, in which the sender is rank 0 and a message is a
//              broadcast from it (exchange.h). Each has its own memory and its own count of messages, so channels
//              disturb neither each other nor the group.
//   opening    the two ends meet in the store when a message is first sent (rendezvous.h). The first end waits,
//              and looks between slices of 50 ms whether the other still lives and the group has not been aborted.
//
// Guarantees: messages of a channel arrive in the order sent. A message that its two ends describe differently is a
// Disagreement on both, with both descriptions; a dead, late or absent end is a PeerError that names it. The memory has
// no name, or loses it as soon as both have it (segment.h): kill -9 leaves nothing.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "trireme/comm/engine/shm/exchange.h"
#include "trireme/comm/engine/shm/rendezvous.h"
#include "trireme/core/clock.h"
#include "trireme/core/rank_info.h"
#include "trireme/core/thread_annotations.h"
#include "trireme/store/store.h"

namespace trireme::comm::shm {

class Channel;

/// The channels of one rank, opened when first used.
/// Thread rule: one message at a time for each peer and direction (a second thread gets a UsageError), otherwise any.
class Channels {
 public:
  struct Options {
    std::shared_ptr<Store> store;    ///< where the ends meet
    std::string prefix;              ///< of the keys; the group's own
    std::shared_ptr<Segment> group;  ///< its control blocks say which ranks live; its abort ends every channel
    RankInfo me{};                   ///< in the group
    RankNames names{};               ///< how its ranks are called in messages
    size_t piece_bytes = 0;
    Clock::duration timeout = std::chrono::minutes(30);  ///< for meeting the other end, and for one message
    int spins = 0;
    FileKinds files = kAllFileKinds;
  };

  explicit Channels(Options options);
  ~Channels();

  /// One message: this rank is `call.root`, the sender, or `call.to`. The sender waits for the receiver.
  void transfer(const Operation& call, std::byte* data);

 private:
  Channel& channel(int from, int to);

  const Options options_;
  Mutex mutex_;
  std::map<std::pair<int, int>, std::unique_ptr<Channel>> channels_
      TRIREME_GUARDED_BY(mutex_);  // by sender and receiver
};

}  // namespace trireme::comm::shm
