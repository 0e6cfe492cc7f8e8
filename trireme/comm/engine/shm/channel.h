// Messages from one rank of a group to another, beside its collectives.
//
//   Channels channels({.store = store, .prefix = "shm/world/", .group = segment, .me = {0, 2}});
//   channels.send(bytes, 1000, DType::f32, 1);            // on rank 0
//   channels.recv(bytes, 1000, DType::f32, 0);            // on rank 1
//
// Words
//   channel    one direction between two ranks: a segment for two, in which the sender is rank 0 and a message is a
//              broadcast from it (exchange.h). Each has its own memory and its own count of messages, so channels
//              disturb neither each other nor the group.
//   opening    the two ends meet in the store when a message is first sent (rendezvous.h). Whoever comes first waits,
//              and looks between slices of 50 ms whether the other still lives and the group has not been aborted.
//
// Guarantees: messages of a channel arrive in the order sent. A message that its two ends describe differently is a
// UsageError on both, with both descriptions; a dead, late or absent end is a PeerError that names it. Any of these
// ends the group too. The memory has no name, or loses it as soon as both have it (segment.h): kill -9 leaves nothing.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "trireme/comm/engine/shm/exchange.h"
#include "trireme/comm/engine/shm/rendezvous.h"
#include "trireme/core/deadline.h"
#include "trireme/core/rank_info.h"
#include "trireme/store/store.h"

namespace trireme::shm {

class Channel;

/// The channels of one rank, opened when first used.
/// Thread rule: one message at a time for each peer and direction (a second thread gets a UsageError), otherwise any.
class Channels {
 public:
  struct Options {
    Store& store;                    ///< where the ends meet; must outlive this object
    std::string prefix;              ///< of the keys; the group's own
    std::shared_ptr<Segment> group;  ///< whose control blocks say who lives, and whose abortion ends every channel
    RankInfo me{};                   ///< in the group
    size_t piece_bytes = 0;
    Clock::duration timeout = std::chrono::minutes(30);  ///< for meeting the other end, and for one message
    int spins = 0;
    FileKinds files = kAllFileKinds;
    std::function<void(std::string_view reason)> on_failure = [](std::string_view) {};  ///< before an error is thrown
  };

  explicit Channels(Options options);
  ~Channels();

  /// Waits for the receiver.
  void send(const void* data, size_t elements, DType dtype, int to);
  void recv(void* data, size_t elements, DType dtype, int from);

 private:
  Channel& channel(int from, int to);
  void check_peer(const char* verb, int peer) const;

  const Options options_;
  std::mutex mutex_;
  std::map<std::pair<int, int>, std::unique_ptr<Channel>> channels_;  // GUARDED_BY(mutex_); by sender and receiver
};

}  // namespace trireme::shm
