#include "trireme/launch/live/live_exchange.h"

#include <fmt/format.h>

#include <exception>
#include <limits>
#include <mutex>
#include <utility>

#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/quiet_thread.h"
#include "trireme/core/text.h"

namespace trireme::launch {
namespace {

constexpr Millis kExchangePeriod{1'000};

std::optional<int64_t> number_in(const std::optional<std::string>& text) {
  return text ? parse_int(*text, 0, std::numeric_limits<int64_t>::max()) : std::nullopt;
}

}  // namespace

LiveExchange::LiveExchange(Options options)
    : options_(std::move(options)),
      prefix_(fmt::format("live/{}/", options_.attempt)),
      thread_(start_quiet_thread("the dashboard's exchange", [this] { exchange_until_stopped(); })) {}

LiveExchange::~LiveExchange() {
  stop();
}

void LiveExchange::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::string LiveExchange::key_of(const char* what, int node) const {
  return fmt::format("{}{}/{}", prefix_, what, node);
}

void LiveExchange::finish(Deadline deadline) try {
  stop();
  if (options_.node != 0) {
    tell();
    options_.store->set(key_of("end", options_.node), "told");
  } else {
    await_others(deadline);
    hear();
  }
} catch (const Error& error) {  // the page keeps what has arrived
  log_debug("the last state of the other nodes is not complete: {}", printable(error.what()));
}

void LiveExchange::await_others(Deadline deadline) try {
  for (int node = 1; node < options_.nodes; ++node) options_.store->get(key_of("end", node), deadline);
} catch (const PeerError&) {
  if (!deadline.passed()) throw;
}

void LiveExchange::publish(const NodeView& view) {
  std::string text = to_json(view);
  const std::lock_guard lock(mutex_);
  mine_ = std::move(text);
}

void LiveExchange::publish_trace(const NodeView& trace) {
  std::string text = to_json(trace);
  const std::lock_guard lock(mutex_);
  trace_ = std::move(text);
}

std::optional<int> LiveExchange::wanted_log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

std::optional<int64_t> LiveExchange::epoch_ms() const {
  const std::lock_guard lock(mutex_);
  return epoch_;
}

std::vector<NodeView> LiveExchange::received() const {
  std::vector<NodeView> views;
  const std::lock_guard lock(mutex_);
  for (const auto& [key, received] : received_) views.push_back(received.view);
  return views;
}

std::map<int, NodeView> LiveExchange::take_traces() {
  const std::lock_guard lock(mutex_);
  return std::exchange(traces_, {});
}

void LiveExchange::want_log(int rank) {
  const std::lock_guard lock(mutex_);
  log_ = rank;
}

void LiveExchange::exchange_until_stopped() try {
  if (options_.node == 0) options_.store->set(prefix_ + "epoch", std::to_string(options_.epoch_ms));
  std::unique_lock lock(mutex_);
  while (!stop_) {
    lock.unlock();
    options_.node == 0 ? hear() : tell();
    lock.lock();
    changed_.wait_for(lock, kExchangePeriod, [this]() TRIREME_REQUIRES(mutex_) { return stop_; });
  }
} catch (const PeerError& error) {
  log_debug("the exchange of what ranks do has ended: {}", error.what());  // the launcher tells of the loss itself
} catch (const std::exception& error) {
  log_warning("{}: {}",
              options_.node == 0 ? "the page and progress.json no longer show what the ranks of other nodes do"
                                 : "node 0 no longer shows what the ranks of this node do",
              printable(error.what()));
}

void LiveExchange::tell() {
  std::string mine, trace;
  {
    const std::lock_guard lock(mutex_);
    mine = mine_;
    trace.swap(trace_);
  }
  if (!mine.empty()) options_.store->set(key_of("node", options_.node), mine);
  if (!trace.empty()) {
    options_.store->set(key_of("trace", options_.node), trace);
    options_.store->set(key_of("traced", options_.node), "sent");
  }
  const auto epoch = number_in(options_.store->try_get(prefix_ + "epoch"));
  const auto log = number_in(options_.store->try_get(prefix_ + "log"));
  const std::lock_guard lock(mutex_);
  epoch_ = epoch;
  log_ = log ? std::optional(static_cast<int>(*log)) : std::nullopt;
}

void LiveExchange::hear() {
  std::optional<int> log;
  {
    const std::lock_guard lock(mutex_);
    log = log_;
  }
  if (log) options_.store->set(prefix_ + "log", std::to_string(*log));
  for (const auto& [key, text] : options_.store->list(prefix_ + "node/")) hear_node(key, text);
  // Not a list of the traces themselves: those of many nodes are longer than a list may be.
  const auto traced = options_.store->list(prefix_ + "traced/");
  for (int node = 1; node < options_.nodes; ++node)
    if (traced.contains(key_of("traced", node))) hear_trace(node);
}

void LiveExchange::hear_trace(int node) {
  const auto text = options_.store->try_get(key_of("trace", node));
  options_.store->remove(key_of("traced", node));
  options_.store->remove(key_of("trace", node));
  if (!text) return;
  try {
    NodeView trace = node_view_from_json(*text);
    const std::lock_guard lock(mutex_);
    traces_[node] = std::move(trace);
  } catch (const PeerError&) {
    // A launcher of another version: its ranks are not in the trace.
  }
}

void LiveExchange::hear_node(const std::string& key, const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    const auto known = received_.find(key);
    if (known != received_.end() && known->second.text == text) return;
  }
  try {
    NodeView view = node_view_from_json(text);
    const std::lock_guard lock(mutex_);
    received_[key] = {.text = text, .view = std::move(view)};
  } catch (const PeerError&) {
    // A launcher of another version: nothing is known about its ranks.
  }
}

}  // namespace trireme::launch
