#include "trireme/launch/nodes/newcomer.h"

#include <filesystem>

#include "trireme/core/backoff.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/core/owner_lock.h"
#include "trireme/core/text.h"
#include "trireme/launch/nodes/claims.h"
#include "trireme/launch/nodes/node_check.h"
#include "trireme/launch/nodes/roster.h"
#include "trireme/store/ended_ranks.h"

namespace trireme::launch {
namespace {

constexpr Millis kNumberLook{500};  // at the numbers, while all are taken
constexpr Millis kToReadList{10'000};

// Waits for the next list of nodes, with which numbers may have become free.
void wait_for_change(Store& store, Deadline deadline) {
  const auto next = roster_within(store, last_round(store) + 1, earlier(deadline, Deadline::in(kNumberLook)));
  if (next && next->over)
    throw PeerError("the job has ended, so this spare node is not needed: {}", next->over->reason);
}

bool is_in_use(const std::filesystem::path& folder) try {
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  return OwnerLock(folder / ".launch.lock").held_by().has_value();
} catch (const SystemError&) {
  return false;  // it cannot be written: reported when the logs are opened
}

void compare(const Introduction& member, const Introduction& self) {
  for (const std::string& line : differences(member, self)) log_warning("nodes differ: {}", line);
  const auto problems = contradictions(member, self);
  if (!problems.empty()) throw UsageError("{}", join(problems, "\n"));
}

// Which member this node does not reach, and why; nothing: it reaches all.
std::optional<std::string> unreachable(Store& store, const Token& token) {
  for (const auto& [number, text] : introductions(store)) {
    const Introduction member = introduction_from_json(text);
    const Reach reach = reach_node(number, member.probe, token, ReachTest::ping);
    if (!reach.error.empty())
      return fmt::format("{} cannot reach {}: {}", host_name(), node_words(number, member.info), reach.error);
  }
  return std::nullopt;
}

}  // namespace

int wait_for_number(Store& store, const NumberWish& wish, Deadline deadline) {
  if (const auto free = try_claim(store, wish.name, wish.wanted, wish.nodes)) return *free;
  queue_for_number(store, wish.name);
  log_info("waiting as a spare: the job has its {} nodes, and this one joins when another leaves", wish.nodes);
  for (;;) {
    wait_for_change(store, deadline);
    const auto free = try_claim(store, wish.name, wish.wanted, wish.nodes);
    if (!free && !deadline.passed()) continue;
    leave_queue(store, wish.name);
    if (free) return *free;
    throw PeerError("none of the job's {} nodes has left within --join_timeout; this spare node ends", wish.nodes);
  }
}

void prepare_to_join(Store& store, const Token& token, Introduction& self, Deadline deadline) {
  const auto members = introductions(store);
  if (!members.empty()) compare(introduction_from_json(members.begin()->second), self);
  if (self.attempt == 0 && is_in_use(self.info.log_dir)) self.info.log_dir += "/" + self.info.host;
  Backoff backoff(Millis(500), Millis(10'000));  // a refusal comes at once
  while (const auto problem = unreachable(store, token)) {
    if (deadline.passed()) throw PeerError("{}; ping and firewall in order?", *problem);
    log_info("waiting: {}", *problem);
    backoff.pause(deadline);
  }
}

void ask_to_gather(const std::shared_ptr<Store>& store, int round, const std::string& node) {
  const auto roster = roster_within(*store, round, Deadline::in(kToReadList));
  if (!roster) throw PeerError("the list of the job's nodes cannot be read");
  if (roster->over) throw PeerError("the job has ended: {}", roster->over->reason);
  if (!store::EndedRanks(store, roster->attempt).list().empty()) return;
  store->compare_set(StoreLink::outcome_key(roster->attempt), "", to_json(JobOutcome::joined(node)));
}

}  // namespace trireme::launch
