#include "trireme/launch/nodes/claims.h"

#include <fmt/format.h>

#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::launch {
namespace {

constexpr std::chrono::milliseconds kToNotice{2000};  // that a node has left
const std::string kIntroductions = "node/";
const std::string kClaims = "claim/";
const std::string kQueue = "waiting/";

std::string claim_key(int number) {
  return fmt::format("{}{}", kClaims, number);
}

std::string left_key(const std::string& name) {
  return "left/" + name;
}

bool claims(Store& store, const std::string& name, int number) {
  return store.compare_set(claim_key(number), "", name) == name;
}

// The owner of the number may have left a moment ago, and the coordinator not yet have noticed.
void claim_exactly(Store& store, const std::string& name, int number) {
  for (;;) {
    const std::string owner = store.compare_set(claim_key(number), "", name);
    if (owner == name) return;
    const Deadline deadline = Deadline::in(kToNotice);
    try {
      store.get(left_key(owner), deadline);
    } catch (const PeerError&) {
      if (!deadline.passed()) throw;
      store.try_get(left_key(owner));  // throws when it was the store that did not answer
      throw UsageError("node {} of this job is already taken by {}; each node needs its own --rank or --ips entry",
                       number, printable(owner));
    }
  }
}

}  // namespace

std::string introduction_key(int number) {
  return fmt::format("{}{}", kIntroductions, number);
}

int claim_number(Store& store, const std::string& name, std::optional<int> wanted, int nodes) {
  if (wanted) {
    claim_exactly(store, name, *wanted);
    return *wanted;
  }
  if (const auto free = try_claim(store, name, std::nullopt, nodes)) return *free;
  throw UsageError("the job has its {} nodes already; is another job meeting there, or --nnodes too small?", nodes);
}

std::optional<int> try_claim(Store& store, const std::string& name, std::optional<int> wanted, int nodes) {
  if (wanted && claims(store, name, *wanted)) return wanted;
  for (int i = 1; i < nodes; ++i)
    if (claims(store, name, i)) return i;
  return std::nullopt;
}

void give_up_number(Store& store, int number) {
  store.remove(introduction_key(number));
  store.remove(claim_key(number));
}

void queue_for_number(Store& store, const std::string& name) {
  store.set(kQueue + name, "");
}

void leave_queue(Store& store, const std::string& name) {
  store.remove(kQueue + name);
}

int waiting_for_number(Store& store, LostNodes& departures) {
  int waiting = 0;
  for (const auto& [key, empty] : store.list(kQueue)) {
    if (departures.contains(key.substr(kQueue.size())))
      store.remove(key);
    else
      ++waiting;
  }
  return waiting;
}

std::vector<std::string> drop_departed(Store& store, LostNodes& departures) {
  departures.take();
  std::vector<std::string> dropped;
  for (const auto& [key, owner] : store.list(kClaims)) {
    const auto number = parse_int(key.substr(kClaims.size()), 1, INT32_MAX);
    if (!number || !departures.contains(owner)) continue;
    give_up_number(store, static_cast<int>(*number));
    store.set(left_key(owner), "");
    dropped.push_back(fmt::format("node {} ({})", *number, printable(owner)));
  }
  return dropped;
}

std::map<int, std::string> introductions(Store& store) {
  std::map<int, std::string> found;
  for (const auto& [key, text] : store.list(kIntroductions))
    if (const auto number = parse_int(key.substr(kIntroductions.size()), 0, INT32_MAX))
      found.emplace(static_cast<int>(*number), text);
  return found;
}

}  // namespace trireme::launch
