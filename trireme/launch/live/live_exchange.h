// How the launchers of a job tell node 0 what their ranks do, for its page and `trireme top`: one thread of each talks
// to the job's store once a second.
//
//   LiveExchange exchange({.store = store, .attempt = 0, .node = 1, .epoch_ms = …});
//   exchange.publish(view);                              // nodes 1, 2 …
//   for (const NodeView& view : exchange.received()) …   // node 0
//   exchange.finish(Deadline::in(2s));                   // all nodes: the last state arrives
//
// A message is bounded by what its NodeView holds. Node 0 asks for the end of one log at a time. Traces are large: node 0
// fetches each by its own key and removes it from the store. A store that is lost, or refuses a request, ends the
// exchange; the reason is logged. Thread rule: all from any thread.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/core/clock.h"
#include "trireme/core/deadline.h"
#include "trireme/core/thread_annotations.h"
#include "trireme/launch/live/job_view.h"
#include "trireme/store/store.h"

namespace trireme::launch {

class LiveExchange {
 public:
  struct Options {
    std::shared_ptr<Store> store;
    int attempt = 0;
    int node = 0;
    int nodes = 1;
    int64_t epoch_ms = 0;  // node 0: when the job began, since 1970
  };
  explicit LiveExchange(Options options);
  ~LiveExchange();
  LiveExchange(const LiveExchange&) = delete;
  LiveExchange& operator=(const LiveExchange&) = delete;

  /// Ends the exchange: the other nodes send what they published last; node 0 waits for that until the deadline.
  void finish(Deadline deadline);

  // --- nodes 1, 2 …
  void publish(const NodeView& view);
  /// Once an attempt.
  void publish_trace(const NodeView& trace);
  /// The rank whose log node 0 wants to see.
  std::optional<int> wanted_log() const;
  /// When the job began by node 0's clock of the day, in milliseconds; nothing until it is known.
  std::optional<int64_t> epoch_ms() const;

  // --- node 0
  /// The newest of each other node.
  std::vector<NodeView> received() const;
  /// By node: those that arrived since the call before.
  std::map<int, NodeView> take_traces();
  void want_log(int rank);

 private:
  struct Received {
    std::string text;
    NodeView view = {};
  };
  void exchange_until_stopped();
  void stop();
  void await_others(Deadline deadline);
  std::string key_of(const char* what, int node) const;
  void tell();
  void hear();
  void hear_node(const std::string& key, const std::string& text);
  void hear_trace(int node);

  const Options options_;
  const std::string prefix_;
  mutable Mutex mutex_;
  std::condition_variable changed_;
  bool stop_ TRIREME_GUARDED_BY(mutex_) = false;
  std::string mine_ TRIREME_GUARDED_BY(mutex_);
  std::string trace_ TRIREME_GUARDED_BY(mutex_);
  std::optional<int> log_ TRIREME_GUARDED_BY(mutex_);
  std::optional<int64_t> epoch_ TRIREME_GUARDED_BY(mutex_);
  std::map<std::string, Received> received_ TRIREME_GUARDED_BY(mutex_);  // by key
  std::map<int, NodeView> traces_ TRIREME_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace trireme::launch
