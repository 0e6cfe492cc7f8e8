// How the launchers of a job show each other what their ranks do, while a rank waits. One thread talks to the job's
// store once a second, and more often while a rank waits; a launcher whose ranks wait asks all others to show theirs.
//
//   RankViews views({.store = store, .attempt = 0, .node = 1});
//   views.publish(snapshots, /*waiting=*/true);
//   for (const watch::RankSnapshot& rank : views.others(Clock::now())) …
//
// A launcher that does not answer for some seconds is left out. A store that is lost ends the exchange: the launchers
// notice the loss elsewhere.
//
// Thread rule: one thread calls.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "trireme/core/clock.h"
#include "trireme/core/thread_annotations.h"
#include "trireme/store/store.h"
#include "trireme/watch/snapshot.h"

namespace trireme::launch {

class RankViews {
 public:
  struct Options {
    std::shared_ptr<Store> store;
    int attempt = 0;
    int node = 0;
  };
  explicit RankViews(Options options);
  ~RankViews();
  RankViews(const RankViews&) = delete;
  RankViews& operator=(const RankViews&) = delete;

  /// This launcher's ranks. `waiting`: one of them waits so long that the others are asked for theirs.
  void publish(const std::vector<watch::RankSnapshot>& ranks, bool waiting);
  /// The ranks of the other launchers, as old as they are by now.
  std::vector<watch::RankSnapshot> others(Clock::time_point now);
  /// The stack of a rank of this node, for the screen of node 0.
  void show_stack(const std::vector<std::string>& lines);
  /// On node 0: a stack that another launcher has shown; each once.
  std::vector<std::string> take_stack();
  /// The launchers of these nodes answer.
  std::vector<int> answering(Clock::time_point now);

 private:
  struct View {
    std::string text;
    Clock::time_point received;
  };
  void exchange_until_stopped();
  /// Whether a launcher has asked since the last time.
  bool exchange();
  void exchange_stacks(bool asked);

  const Options options_;
  const std::string prefix_;
  std::string asked_;  // the exchange thread's: the last request that was answered
  int64_t serial_ = 0;
  Mutex mutex_;
  std::condition_variable changed_;
  bool stop_ TRIREME_GUARDED_BY(mutex_) = false;
  bool waiting_ TRIREME_GUARDED_BY(mutex_) = false;
  bool ask_now_ TRIREME_GUARDED_BY(mutex_) = false;
  std::string mine_ TRIREME_GUARDED_BY(mutex_);
  std::string stack_to_show_ TRIREME_GUARDED_BY(mutex_);
  std::map<std::string, std::string> stacks_ TRIREME_GUARDED_BY(mutex_);  // by key, all that have come
  std::vector<std::string> stack_ TRIREME_GUARDED_BY(mutex_);             // not yet taken
  std::map<std::string, View> views_ TRIREME_GUARDED_BY(mutex_);          // by key
  std::thread thread_;
};

}  // namespace trireme::launch
