#include "trireme/launch/nodes/node_check.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/core/whole_numbers.h"
#include "trireme/store/tcp_client.h"

namespace trireme::launch {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Reach, node, error, round_trip_ms, clock_skew_ms, megabytes_per_second)

namespace {

constexpr int kPings = 5;
constexpr size_t kBlock = 8u << 20;
constexpr int kBlocks = 8;

double millis(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

double wall_clock_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double best_round_trip(store::TcpStore& store, Millis patience) {
  double best = 1e9;
  for (int i = 0; i < kPings; ++i) best = std::min(best, millis(store.ping(0, Deadline::in(patience))));
  return best;
}

double clock_skew(store::TcpStore& store) {
  const double before = wall_clock_ms();
  const auto theirs = static_cast<double>(store.server_time_ms());
  return theirs - (before + wall_clock_ms()) / 2;
}

double throughput(store::TcpStore& store) {
  const auto start = Clock::now();
  for (int i = 0; i < kBlocks; ++i) store.ping(kBlock, Deadline::in(std::chrono::seconds(30)));
  const double seconds = millis(Clock::now() - start) / 1000;
  return 2.0 * kBlocks * kBlock / 1e6 / seconds;
}

constexpr auto kTurnTime = std::chrono::minutes(5);  // for one node to measure all others

std::string rows_key(int node) {
  return fmt::format("measured/{}", node);
}

std::string measure_others(Meeting& meeting) {
  json rows = json::array();
  for (int other = 0; other < static_cast<int>(meeting.nodes().size()); ++other)
    if (other != meeting.node())
      rows.push_back(
          reach_node(other, meeting.probes()[static_cast<size_t>(other)], meeting.token(), ReachTest::throughput));
  return rows.dump();
}

}  // namespace

bool should_try(int self, int other, int nodes) {
  constexpr int kAllPairs = 32;
  if (self == other) return false;
  return nodes <= kAllPairs || other == 0 || (other - self + nodes) % nodes <= 2;
}

Reach reach_node(int node, const Endpoint& probe, const Token& token, ReachTest test, Millis patience) {
  Reach result{.node = node};
  try {
    const auto store = store::TcpStore::connect({.server = probe, .token = token, .request_timeout = patience},
                                                Deadline::in(patience));
    result.round_trip_ms = best_round_trip(*store, patience);
    result.clock_skew_ms = clock_skew(*store);
    if (test == ReachTest::throughput) result.megabytes_per_second = throughput(*store);
  } catch (const Error& error) {
    result.error = printable(error.what());
  }
  return result;
}

std::vector<Reach> reaches_from_json(const std::string& text, int nodes) try {
  const json rows = json::parse(text);
  require_whole_numbers(rows, json::array({json{{"node", 0}}}));
  auto reaches = rows.get<std::vector<Reach>>();
  for (Reach& reach : reaches) {
    if (reach.node < 0 || reach.node >= nodes)
      throw PeerError("a node has measured the way to node {}, but there are {}", reach.node, nodes);
    reach.error = printable(reach.error);
  }
  return reaches;
} catch (const json::exception& error) {
  throw PeerError("what a node has measured cannot be read ({}); do all nodes run the same version of Trireme?",
                  printable(error.what()));
}

std::vector<PairReport> measure_pairs(Meeting& meeting) {
  std::vector<PairReport> pairs;
  for (int node = 0; node < static_cast<int>(meeting.nodes().size()); ++node) {
    if (node == meeting.node()) meeting.control().set(rows_key(node), measure_others(meeting));
    const std::string rows = meeting.control().get(rows_key(node), Deadline::in(kTurnTime));
    for (Reach& reach : reaches_from_json(rows, static_cast<int>(meeting.nodes().size())))
      pairs.push_back({node, std::move(reach)});
  }
  return pairs;
}

std::string pairs_table(const std::vector<NodeInfo>& nodes, const std::vector<PairReport>& pairs) {
  std::string text =
      fmt::format("{:<28} {:<28} {:>13} {:>12} {:>12}\n", "from", "to", "round trip ms", "MB/s", "clock ms");
  const auto name = [&](int node) {
    const NodeInfo& info = nodes.at(static_cast<size_t>(node));
    return fmt::format("{} {} ({})", node, info.address, info.interface);
  };
  for (const PairReport& pair : pairs) {
    text += fmt::format("{:<28} {:<28} ", name(pair.from), name(pair.reach.node));
    if (!pair.reach.error.empty())
      text += pair.reach.error + "\n";
    else
      text += fmt::format("{:>13.3f} {:>12.0f} {:>+12.1f}\n", pair.reach.round_trip_ms, pair.reach.megabytes_per_second,
                          pair.reach.clock_skew_ms);
  }
  return text;
}

}  // namespace trireme::launch
