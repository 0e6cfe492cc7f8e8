#include "trireme/launch/nodes/rank_views.h"

#include <fmt/format.h>

#include <limits>
#include <mutex>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/quiet_thread.h"
#include "trireme/core/text.h"

namespace trireme::launch {
namespace {

constexpr Millis kExchangeEvery{1'000};
constexpr Millis kWhileRanksWait{300};
constexpr Millis kStale{5'000};

// Since a view was made, its waits have grown.
void grow(std::vector<watch::RankSnapshot>& ranks, int64_t ms) {
  for (watch::RankSnapshot& rank : ranks) {
    rank.phase_ms += ms;
    if (rank.still_ms >= 0) rank.still_ms += ms;
    if (rank.state == watch::ProcessState::stopped) rank.stopped_ms += ms;
    for (watch::Call& call : rank.calls) call.age_ms += ms;
  }
}

}  // namespace

RankViews::RankViews(Options options)
    : options_(std::move(options)),
      prefix_(fmt::format("watch/{}/", options_.attempt)),
      thread_(start_quiet_thread("the watch for hangs", [this] { exchange_until_stopped(); })) {}

RankViews::~RankViews() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void RankViews::publish(const std::vector<watch::RankSnapshot>& ranks, bool waiting) {
  std::string text = watch::to_json(ranks);
  const std::lock_guard lock(mutex_);
  mine_ = std::move(text);
  ask_now_ |= waiting && !waiting_;
  waiting_ = waiting;
  if (ask_now_) changed_.notify_all();
}

std::vector<watch::RankSnapshot> RankViews::others(Clock::time_point now) {
  std::vector<watch::RankSnapshot> all;
  const std::lock_guard lock(mutex_);
  for (const auto& [key, view] : views_) {
    if (now - view.received > kStale) continue;
    try {
      auto ranks = watch::snapshots_from_json(view.text.substr(view.text.find('\n') + 1));
      grow(ranks, std::chrono::duration_cast<Millis>(now - view.received).count());
      all.insert(all.end(), ranks.begin(), ranks.end());
    } catch (const PeerError&) {
      // A launcher of another version: nothing is known about its ranks.
    }
  }
  return all;
}

void RankViews::show_stack(const std::vector<std::string>& lines) {
  const std::lock_guard lock(mutex_);
  stack_to_show_ = join(lines, "\n");
}

std::vector<std::string> RankViews::take_stack() {
  const std::lock_guard lock(mutex_);
  return std::exchange(stack_, {});
}

std::vector<int> RankViews::answering(Clock::time_point now) {
  std::vector<int> nodes;
  const std::lock_guard lock(mutex_);
  for (const auto& [key, view] : views_) {
    const auto node = parse_int(key.substr(key.rfind('/') + 1), 0, std::numeric_limits<int>::max());
    if (node && now - view.received <= kStale) nodes.push_back(static_cast<int>(*node));
  }
  return nodes;
}

void RankViews::exchange_until_stopped() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    lock.unlock();
    bool asked = false;
    try {
      asked = exchange();
    } catch (const Error&) {
      return;
    }
    lock.lock();
    changed_.wait_for(lock, asked ? kWhileRanksWait : kExchangeEvery,
                      [this]() TRIREME_REQUIRES(mutex_) { return stop_ || ask_now_; });
    ask_now_ = false;
  }
}

bool RankViews::exchange() {
  std::string mine;
  bool waiting = false;
  {
    const std::lock_guard lock(mutex_);
    mine = mine_;
    waiting = waiting_;
  }
  const std::string request = prefix_ + "asked";
  const std::string asked =
      waiting ? std::to_string(options_.store->add(request, 1)) : options_.store->try_get(request).value_or("");
  exchange_stacks(asked != asked_);
  if (asked == asked_ || mine.empty()) return false;
  asked_ = asked;
  const std::string own_key = fmt::format("{}node/{}", prefix_, options_.node);
  options_.store->set(own_key, fmt::format("{}\n{}", ++serial_, mine));  // the number shows that it is new
  for (const auto& [key, text] : options_.store->list(prefix_ + "node/")) {
    if (key == own_key) continue;
    const std::lock_guard lock(mutex_);
    View& view = views_[key];
    if (view.text == text) continue;
    view = {text, Clock::now()};
  }
  return true;
}

void RankViews::exchange_stacks(bool asked) {
  const std::string prefix = prefix_ + "stack/";
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    text = std::exchange(stack_to_show_, {});
  }
  if (!text.empty())
    options_.store->set(prefix + std::to_string(options_.node), fmt::format("{}\n{}", ++serial_, text));
  if (!asked || options_.node != 0) return;
  for (const auto& [key, shown] : options_.store->list(prefix)) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stacks_[key], shown) == shown) continue;
    stack_ = split(shown.substr(shown.find('\n') + 1), '\n');
  }
}

}  // namespace trireme::launch
