#include "trireme/launch/nodes/node_check.h"

#include <algorithm>

#include "trireme/core/error.h"
#include "trireme/store/tcp_client.h"

namespace trireme::launch {
namespace {

constexpr auto kPatience = std::chrono::seconds(5);
constexpr int kPings = 5;
constexpr size_t kBlock = 8u << 20;
constexpr int kBlocks = 8;

double millis(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

double wall_clock_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double best_round_trip(TcpStore& store) {
  double best = 1e9;
  for (int i = 0; i < kPings; ++i) best = std::min(best, millis(store.ping(0, Deadline::in(kPatience))));
  return best;
}

double clock_skew(TcpStore& store) {
  const double before = wall_clock_ms();
  const auto theirs = static_cast<double>(store.server_time_ms());
  return theirs - (before + wall_clock_ms()) / 2;
}

double throughput(TcpStore& store) {
  const auto start = Clock::now();
  for (int i = 0; i < kBlocks; ++i) store.ping(kBlock, Deadline::in(std::chrono::seconds(30)));
  const double seconds = millis(Clock::now() - start) / 1000;
  return 2.0 * kBlocks * kBlock / 1e6 / seconds;
}

Reach reach(int node, const Endpoint& probe, const Token& token, bool measure) {
  Reach result{.node = node};
  try {
    const auto store = TcpStore::connect({.server = probe, .token = token}, Deadline::in(kPatience));
    result.round_trip_ms = best_round_trip(*store);
    result.clock_skew_ms = clock_skew(*store);
    if (measure) result.megabytes_per_second = throughput(*store);
  } catch (const Error& error) {
    result.error = error.what();
  }
  return result;
}

}  // namespace

Reach reach_node(int node, const Endpoint& probe, const Token& token) {
  return reach(node, probe, token, false);
}

Reach measure_node(int node, const Endpoint& probe, const Token& token) {
  return reach(node, probe, token, true);
}

}  // namespace trireme::launch
