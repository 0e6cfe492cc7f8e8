// Whether this node still reaches others while the job runs: nodes that all reach node 0 may have lost each other, and
// their ranks then wait for bytes that do not come. One thread tries the nodes that it was given, once a second.
//
//   LinkProbe probe([&](int node) { return reach_node(node, …).error; });
//   probe.try_nodes({2});                          // {}: none
//   if (auto cut = probe.cut(8s)) …                // node 2, and why it was not reached for 8 s
//
// Thread rule: one thread calls.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/core/clock.h"
#include "trireme/core/deadline.h"
#include "trireme/core/thread_annotations.h"

namespace trireme::launch {

class LinkProbe {
 public:
  /// Tries a node: why it is not reached, or "". It must return within some seconds.
  using Try = std::function<std::string(int node)>;
  struct Cut {
    int node = 0;
    std::string why = {};
  };

  explicit LinkProbe(Try try_node);
  ~LinkProbe();
  LinkProbe(const LinkProbe&) = delete;
  LinkProbe& operator=(const LinkProbe&) = delete;

  void try_nodes(std::vector<int> nodes);
  /// A node that could not be reached, with so long between the beginnings of two failed tries and no better one
  /// between.
  std::optional<Cut> cut(Millis time);

 private:
  struct Failing {
    Clock::time_point first, last;  // the beginnings of tries
    std::string why;
  };
  void try_until_stopped();
  bool stopped();
  std::vector<int> next_nodes();
  void note(int node, Clock::time_point begun, const std::string& why);

  const Try try_node_;
  Mutex mutex_;
  std::condition_variable changed_;
  bool stop_ TRIREME_GUARDED_BY(mutex_) = false;
  std::vector<int> nodes_ TRIREME_GUARDED_BY(mutex_);
  std::map<int, Failing> failing_ TRIREME_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace trireme::launch
