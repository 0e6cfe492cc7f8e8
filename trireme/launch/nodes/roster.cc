#include "trireme/launch/nodes/roster.h"

#include <nlohmann/json.hpp>

#include "trireme/core/log.h"
#include "trireme/core/text.h"

namespace trireme::launch {

using nlohmann::json;

namespace {

constexpr std::chrono::milliseconds kToNotice{2000};  // that a node has left

std::string claim_key(int number) {
  return fmt::format("claim/{}", number);
}

std::string left_key(const std::string& name) {
  return "left/" + name;
}

std::vector<int> missing_numbers(Store& store, int nodes) {
  std::vector<int> missing;
  for (int i = 0; i < nodes; ++i)
    if (!store.try_get(introduction_key(i))) missing.push_back(i);
  return missing;
}

std::string missing_text(Store& store, const Seat& seat) {
  std::vector<std::string> names;
  for (const int i : missing_numbers(store, seat.nodes)) {
    const auto index = static_cast<size_t>(i);
    names.push_back(index < seat.peers.size() ? fmt::format("node {} ({})", i, seat.peers[index])
                                              : fmt::format("node {}", i));
  }
  return fmt::format("waiting for {} of {} nodes: {} (started there? same --job_id? ping and firewall in order?)",
                     names.size(), seat.nodes, join(names, ", "));
}

// Makes room for a node that went away, so that it can be started again.
void drop_departed(Store& store, int nodes, LostNodes& departures) {
  for (const std::string& name : departures.take()) {
    for (int i = 1; i < nodes; ++i) {
      if (store.try_get(claim_key(i)) != name) continue;
      store.remove(introduction_key(i));
      store.remove(claim_key(i));
      store.set(left_key(name), "");
      log_warning("node {} ({}) left before the job began; it may be started again", i, printable(name));
    }
  }
}

// The owner of the number may have left a moment ago, and the coordinator not yet have noticed.
void claim_exactly(Store& store, const std::string& name, int number) {
  for (;;) {
    const std::string owner = store.compare_set(claim_key(number), "", name);
    if (owner == name) return;
    try {
      store.get(left_key(owner), Deadline::in(kToNotice));
    } catch (const PeerError&) {
      throw UsageError("node {} of this job is already taken by {}; each node needs its own --rank or --ips entry",
                       number, printable(owner));
    }
  }
}

}  // namespace

std::string introduction_key(int number) {
  return fmt::format("node/{}", number);
}

int claim_number(Store& store, const std::string& name, std::optional<int> wanted, int nodes) {
  if (wanted) {
    claim_exactly(store, name, *wanted);
    return *wanted;
  }
  for (int i = 1; i < nodes; ++i)
    if (store.compare_set(claim_key(i), "", name) == name) return i;
  throw UsageError("the job has its {} nodes already; is another job meeting there, or --nnodes too small?", nodes);
}

void publish_roster(Store& store, const Seat& seat, int max_restart, LostNodes& departures, Deadline deadline) {
  const auto everyone = [&](Deadline slice) {
    for (;;) {
      drop_departed(store, seat.nodes, departures);
      const auto missing = missing_numbers(store, seat.nodes);
      if (missing.empty()) return true;
      // A departure does not end a wait for an arrival, so look for it often.
      const Deadline look = earlier(slice, Deadline::in(kToNotice / 4));
      try {
        store.get(introduction_key(missing.front()), look);
      } catch (const PeerError&) {
        if (slice.passed()) throw;
      }
    }
  };
  patiently(deadline, everyone, [&](const PeerError&) { return missing_text(store, seat); });
  json roster{{"nodes", json::array()}, {"max_restart", max_restart}};
  for (int i = 0; i < seat.nodes; ++i) roster["nodes"].push_back(store.get(introduction_key(i), deadline));
  store.set("roster", roster.dump());
}

Roster read_roster(Store& store, const Seat& seat, Deadline deadline) {
  const std::string text = patiently(
      deadline, [&](Deadline slice) { return store.get("roster", slice); },
      [&](const PeerError&) { return missing_text(store, seat); });
  try {
    const json value = json::parse(text);
    Roster roster{.max_restart = value.at("max_restart").get<int>()};
    for (const auto& node : value.at("nodes")) roster.nodes.push_back(introduction_from_json(node.get<std::string>()));
    return roster;
  } catch (const json::exception& error) {
    throw PeerError("the list of nodes cannot be read ({}); do all nodes run the same version of Trireme?",
                    error.what());
  }
}

}  // namespace trireme::launch
