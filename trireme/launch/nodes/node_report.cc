#include "trireme/launch/nodes/node_report.h"

#include <nlohmann/json.hpp>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::launch {

using nlohmann::json;

namespace {

constexpr auto kTurnTime = std::chrono::minutes(5);  // for one node to measure all others

std::string rows_key(int node) {
  return fmt::format("measured/{}", node);
}

json to_row(const Reach& reach) {
  return {{"node", reach.node},
          {"error", printable(reach.error)},
          {"round_trip_ms", reach.round_trip_ms},
          {"clock_skew_ms", reach.clock_skew_ms},
          {"megabytes_per_second", reach.megabytes_per_second}};
}

std::string measure_others(Meeting& meeting) {
  json rows = json::array();
  for (int other = 0; other < static_cast<int>(meeting.nodes().size()); ++other)
    if (other != meeting.node())
      rows.push_back(to_row(measure_node(other, meeting.probes()[static_cast<size_t>(other)], meeting.token())));
  return rows.dump();
}

}  // namespace

std::vector<PairReport> measure_pairs(Meeting& meeting) {
  std::vector<PairReport> pairs;
  for (int node = 0; node < static_cast<int>(meeting.nodes().size()); ++node) {
    if (node == meeting.node()) meeting.control().set(rows_key(node), measure_others(meeting));
    for (const json& row : json::parse(meeting.control().get(rows_key(node), Deadline::in(kTurnTime))))
      pairs.push_back({node,
                       {.node = row.at("node").get<int>(),
                        .error = row.at("error").get<std::string>(),
                        .round_trip_ms = row.at("round_trip_ms").get<double>(),
                        .clock_skew_ms = row.at("clock_skew_ms").get<double>(),
                        .megabytes_per_second = row.at("megabytes_per_second").get<double>()}});
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
