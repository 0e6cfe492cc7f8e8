#include "trireme/launch/nodes/link_probe.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "trireme/core/quiet_thread.h"

namespace trireme::launch {
namespace {

constexpr Millis kTryEvery{1'000};

}  // namespace

LinkProbe::LinkProbe(Try try_node)
    : try_node_(std::move(try_node)),
      thread_(start_quiet_thread("the look at the links", [this] { try_until_stopped(); })) {}

LinkProbe::~LinkProbe() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LinkProbe::try_nodes(std::vector<int> nodes) {
  const std::lock_guard lock(mutex_);
  const bool begins = nodes_.empty() && !nodes.empty();
  nodes_ = std::move(nodes);
  std::erase_if(failing_, [this](const auto& entry) TRIREME_REQUIRES(mutex_) {
    return std::find(nodes_.begin(), nodes_.end(), entry.first) == nodes_.end();
  });
  if (begins) changed_.notify_all();
}

std::optional<LinkProbe::Cut> LinkProbe::cut(Millis time) {
  const std::lock_guard lock(mutex_);
  for (const auto& [node, failing] : failing_)
    if (failing.last - failing.first >= time) return Cut{node, failing.why};
  return std::nullopt;
}

void LinkProbe::try_until_stopped() {
  for (;;) {
    const std::vector<int> nodes = next_nodes();
    if (nodes.empty()) return;
    for (const int node : nodes) {
      if (stopped()) return;
      const auto begun = Clock::now();
      note(node, begun, try_node_(node));
    }
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kTryEvery, [this]() TRIREME_REQUIRES(mutex_) { return stop_; });
  }
}

bool LinkProbe::stopped() {
  const std::lock_guard lock(mutex_);
  return stop_;
}

// Waits until there are some; none: stop.
std::vector<int> LinkProbe::next_nodes() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this]() TRIREME_REQUIRES(mutex_) { return stop_ || !nodes_.empty(); });
  return stop_ ? std::vector<int>() : nodes_;
}

void LinkProbe::note(int node, Clock::time_point begun, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (why.empty() || std::find(nodes_.begin(), nodes_.end(), node) == nodes_.end()) {
    failing_.erase(node);
    return;
  }
  Failing& failing = failing_.try_emplace(node, Failing{begun, begun, ""}).first->second;
  failing.last = begun;
  failing.why = why;
}

}  // namespace trireme::launch
