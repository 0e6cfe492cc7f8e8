// What all groups of one process share: the store they meet in, and what the ranks have told each other.
//
//   auto context = Context::meet({.world = {0, 2}, .store = store, .address = "10.0.0.1", .timeout = 30min});
//   auto engine  = context->make_engine("world", {0, 1});
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/engine/card.h"
#include "trireme/comm/engine/engine.h"
#include "trireme/comm/engine/liveness.h"
#include "trireme/core/net.h"
#include "trireme/core/rank_info.h"
#include "trireme/core/thread_annotations.h"
#include "trireme/core/transport.h"
#include "trireme/store/store.h"
#include "trireme/watch/recorder.h"

namespace trireme::comm {

struct ContextOptions {
  RankInfo world{};
  std::shared_ptr<Store> store = {};  ///< null under mpirun
  std::string prefix = "comm/";       ///< of all keys; new for every restart of the job
  std::string address = {};           ///< of this host, for the others
  std::string backend = "auto";       ///< see choose_transport()
  std::string gpu = {};               ///< which GPU this rank uses, by a name that is the same in every process
  int gpu_index = -1;                 ///< its number in this process
  std::chrono::milliseconds timeout{std::chrono::minutes(30)};
  bool compare_calls = true;  ///< before each collective, where ranks do not share memory, which compares anyway
  bool log_calls = false;     ///< log every operation before it runs
  bool wait_at_once = false;  ///< wait for asynchronous collectives where they are called
  bool mpi = false;           ///< started by mpirun or srun
  /// The restart of our own launcher's job; nothing: nobody tells which ranks have ended.
  std::optional<int> attempt = {};
};

/// The host of each rank of a group, counted from 0 in order of first appearance. Pure.
std::vector<int> hosts_of(const std::vector<Card>& cards, std::span<const int> ranks);

class Context {
 public:
  /// Exchanges the cards. PeerError when a rank does not come.
  static std::shared_ptr<Context> meet(const ContextOptions& options);

  const ContextOptions& options() const { return options_; }
  const std::vector<Card>& cards() const { return cards_; }

  /// The name of the group of these ranks: another one each time it is asked for, the same on every member.
  std::string name_group(std::span<const int> ranks);
  /// Meets the members. `ranks` are world ranks in the order of the group; this process is one of them. `operation` is
  /// what the program has called, for messages.
  std::unique_ptr<Engine> make_engine(const std::string& name, std::span<const int> ranks,
                                      const char* operation = "new_group");
  /// Which of these are dead or cut off, by their names or else their numbers among them; empty when all live.
  Blame blame(std::span<const int> ranks, const RankNames& names = {}) const;
  /// Which of a few of these are dead; which few is the caller's `turn`, so that asking again and again costs little
  /// however many there are.
  Blame find_dead(std::span<const int> ranks, const RankNames& names, size_t turn) const;

 private:
  explicit Context(const ContextOptions& options) : options_(options) {}
  using StorePtr = std::shared_ptr<Store>;
  void exchange_cards(Store& store);
  std::unique_ptr<Engine> meet_members(const StorePtr& store, const std::string& name, std::span<const int> ranks);
  template <typename Meet>
  void watch_meeting(const char* operation, const std::string& name, std::span<const int> ranks, const Meet& meet);
  void report_waits(Engine& engine, std::span<const int> ranks) const;
  void note_wait(const char* operation, std::vector<int> ranks) const;
  Suspect suspect(std::span<const int> ranks, size_t place, const RankNames& names) const;
  std::unique_ptr<Engine> make_plain_engine(Transport transport, const StorePtr& store, const std::string& name,
                                            std::span<const int> ranks, const Member& member);
  std::unique_ptr<Engine> make_gloo(const StorePtr& store, const std::string& name, std::span<const int> ranks,
                                    const Member& member);
  std::unique_ptr<Engine> make_shm(const StorePtr& store, const std::string& name, const Member& member);
  std::unique_ptr<Engine> make_hierarchical(const StorePtr& store, const std::string& name, std::span<const int> ranks);
  RankInfo me_among(std::span<const int> ranks) const;

  const ContextOptions options_;
  std::vector<Card> cards_;
  std::unique_ptr<Beacon> beacon_;
  watch::Group meeting_;  // of the exchange of cards, for the launcher's watch
  Mutex mutex_;
  std::map<std::string, int> uses_ TRIREME_GUARDED_BY(mutex_);  // how often each list of ranks became a group
};

}  // namespace trireme::comm
