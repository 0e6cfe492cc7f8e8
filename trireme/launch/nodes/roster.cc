#include "trireme/launch/nodes/roster.h"

#include <nlohmann/json.hpp>

#include "trireme/core/log.h"
#include "trireme/core/text.h"
#include "trireme/core/whole_numbers.h"
#include "trireme/launch/nodes/claims.h"

namespace trireme::launch {

using nlohmann::json;

namespace {

constexpr Millis kObjectionLook{500};  // of a long wait in which something else must be looked at
const std::string kRefusal = "refused/";
const std::string kRound = "round";

std::string roster_key(int round) {
  return fmt::format("roster/{}", round);
}

json rules_json(const ElasticRules& rules) {
  return {{"on", rules.on},
          {"failing_node_leaves", rules.failing_node_leaves},
          {"min", rules.min},
          {"max", rules.max},
          {"timeout_ms", rules.timeout.count()}};
}

ElasticRules rules_from(const json& value) {
  return {.on = value.at("on").get<bool>(),
          .failing_node_leaves = value.at("failing_node_leaves").get<bool>(),
          .min = value.at("min").get<int>(),
          .max = value.at("max").get<int>(),
          .timeout = Millis(value.at("timeout_ms").get<int64_t>())};
}

std::string to_json(const Roster& roster) {
  json value{{"nodes", json::array()},
             {"attempt", roster.attempt},
             {"restarts", roster.restarts},
             {"max_restart", roster.max_restart},
             {"rules", rules_json(roster.rules)}};
  for (const Introduction& node : roster.nodes) value["nodes"].push_back(to_json(node));
  if (roster.over) value["over"] = to_json(*roster.over);
  return value.dump();
}

Roster roster_from_json(const std::string& text) try {
  const json value = json::parse(text);
  require_whole_numbers(value, json::parse(to_json(Roster())));
  Roster roster{.attempt = value.at("attempt").get<int>(),
                .restarts = value.at("restarts").get<int>(),
                .max_restart = value.at("max_restart").get<int>(),
                .rules = rules_from(value.at("rules"))};
  for (const auto& node : value.at("nodes")) roster.nodes.push_back(introduction_from_json(node.get<std::string>()));
  if (value.contains("over")) roster.over = outcome_from_json(value.at("over").get<std::string>());
  return roster;
} catch (const json::exception& error) {
  throw PeerError("the list of nodes cannot be read ({}); do all nodes run the same version of Trireme?", error.what());
}

}  // namespace

void publish_roster(Store& store, int round, const Roster& roster) {
  store.set(roster_key(round), to_json(roster));
  store.set(kRound, std::to_string(round));
}

int last_round(Store& store) {
  const auto round = parse_int(store.try_get(kRound).value_or(""), 0, INT32_MAX);
  return static_cast<int>(round.value_or(-1));
}

std::optional<Roster> roster_within(Store& store, int round, Deadline deadline) {
  std::string text;
  try {
    text = store.get(roster_key(round), deadline);
  } catch (const PeerError&) {
    if (!deadline.passed()) throw;
    return std::nullopt;
  }
  return roster_from_json(text);
}

Roster read_roster(Store& store, const Seat& seat, int round, Deadline deadline, const JobLink::Objection& objection) {
  const auto wait = [&](Deadline patience) -> Roster {
    for (;;) {
      if (const auto reason = objection(Deadline::in(Millis(0)))) return {.over = reason};
      if (auto roster = roster_within(store, round, earlier(patience, Deadline::in(kObjectionLook))))
        return *std::move(roster);
      if (patience.passed()) throw PeerError("no list of nodes has come");
    }
  };
  const auto missing = [&](const PeerError&) { return missing_text(store, seat); };
  return patiently(deadline, wait, missing, kFirstReport);
}

std::string missing_text(Store& store, const Seat& seat) {
  std::vector<std::string> names;
  const auto present = introductions(store);
  for (int i = 0; i < seat.nodes; ++i) {
    const auto index = static_cast<size_t>(i);
    if (present.contains(i)) continue;
    names.push_back(index < seat.peers.size() ? seat.peers[index] : fmt::format("node {}", i));
  }
  const size_t here = static_cast<size_t>(seat.nodes) - names.size();
  return fmt::format("{} of {} nodes {} here; missing {} (started there? same --job_id? ping and firewall in order?)",
                     here, seat.nodes, here == 1 ? "is" : "are", join(names, ", "));
}

void tell_refusal(Store& store, const std::string& host, const std::string& reason) {
  store.set(fmt::format("{}{}", kRefusal, host), reason);
}

void show_refusals(Store& store) {
  for (const auto& [key, reason] : store.list(kRefusal)) {
    log_warning("{} wanted to join and was refused: {}", printable(key.substr(kRefusal.size())), printable(reason));
    store.remove(key);
  }
}

}  // namespace trireme::launch
