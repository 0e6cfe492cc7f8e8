#include "trireme/watch/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "trireme/core/text.h"
#include "trireme/watch/activity.h"

namespace trireme::watch {
namespace {

using Kind = Verdict::Kind;

constexpr const char* kLogCalls =
    " GLOG_v=3 logs every call before it runs, and FLAGS_benchmark=1 waits for each: the last one is the stuck one.";

// One rank in one open call that has lasted long enough.
struct Wait {
  const RankSnapshot* rank;
  const Call* call;
  const GroupView* group;    // null for a call of a group that the rank does not list
  std::vector<int> awaited;  // the ranks that hold it up
};

bool same_call(const Call& a, const Call& b) {
  return a.operation == b.operation && a.dtype == b.dtype && a.reduce == b.reduce && a.root == b.root &&
         a.elements == b.elements && a.digest == b.digest;
}

const Call* find_call(const RankSnapshot& rank, uint64_t group, uint64_t number) {
  for (const Call& call : rank.calls)
    if (call.group == group && call.number == number && !call.is_message()) return &call;
  return nullptr;
}

class Judge {
 public:
  Judge(const std::vector<RankSnapshot>& ranks, const JudgeOptions& options) : options_(options) {
    for (const RankSnapshot& rank : ranks) ranks_.emplace(rank.rank, &rank);
    for (const auto& [number, rank] : ranks_) add_waits(*rank);
  }

  Verdict verdict() const {
    if (waits_.empty()) return {};
    Verdict result = find();
    if (const auto traced = traced_rank(); traced && result.proven) {
      result.proven = false;
      result.advice = fmt::format("Rank {} is in a debugger, so the job is not ended.", *traced);
    }
    if (result.kind != Kind::none) result.details = details();
    return result;
  }

 private:
  Verdict find() const {
    for (const auto& rule : {&Judge::mismatch, &Judge::gone, &Judge::deadlock, &Judge::busy, &Judge::cycle})
      if (auto found = (this->*rule)()) return *found;
    return inside();
  }

  const RankSnapshot* known(int rank) const {
    const auto found = ranks_.find(rank);
    return found == ranks_.end() ? nullptr : found->second;
  }

  std::optional<int> traced_rank() const {
    for (const auto& [number, rank] : ranks_)
      if (rank->state == ProcessState::traced) return number;
    return std::nullopt;
  }

  // --- who waits for whom

  void add_waits(const RankSnapshot& rank) {
    if (has_ended(rank.state) || rank.state == ProcessState::stopped) return;
    for (const Call& call : rank.calls) {
      if (!call.open) continue;
      const GroupView* const group = find_group(rank, call.group);
      const Wait wait{&rank, &call, group, awaited(rank, call, group)};
      all_waits_.push_back(wait);
      if (call.age_ms >= options_.waited_ms) waits_.push_back(wait);
    }
  }

  std::vector<int> awaited(const RankSnapshot& rank, const Call& call, const GroupView* group) const {
    if (call.is_message()) return meets(rank, call) ? std::vector<int>() : std::vector<int>{call.peer};
    std::vector<int> ranks;
    if (!group) return ranks;
    for (const int member : members_of(*group))
      if (member != rank.rank && holds_up(member, call)) ranks.push_back(member);
    return ranks;
  }

  // Whether the other side of a message is in it too.
  bool meets(const RankSnapshot& rank, const Call& call) const {
    const RankSnapshot* const peer = known(call.peer);
    if (!peer || peer->state == ProcessState::stopped || has_ended(peer->state)) return false;
    return std::any_of(peer->calls.begin(), peer->calls.end(), [&](const Call& other) {
      return other.open && other.group == call.group && other.peer == rank.rank && other.operation != call.operation;
    });
  }

  bool holds_up(int member, const Call& call) const {
    const RankSnapshot* const rank = known(member);
    if (!rank) return false;
    const GroupView* const group = find_group(*rank, call.group);
    if (!group && rank->groups.size() >= Ring::kGroups) return false;  // it has more than it can record
    if (!group || group->begun <= call.number) return true;
    if (rank->state != ProcessState::stopped && !has_ended(rank->state)) return false;
    const Call* const same = find_call(*rank, call.group, call.number);
    return same && same->open;
  }

  // --- the words

  // The waits in one call, the first of which tells how long.
  std::string waits_words(const std::vector<const Wait*>& waits) const {
    const Wait& first = *waits.front();
    std::vector<int> ranks;
    for (const Wait* wait : waits) ranks.push_back(wait->rank->rank);
    return fmt::format("{} {} in {}{} since {}", ranks_words(ranks), ranks.size() == 1 ? "waits" : "wait",
                       describe(*first.call), group_words(first.group), seconds_words(first.call->age_ms));
  }

  // All that wait in the same call as this one, this one first.
  std::vector<const Wait*> together_with(const Wait& wait) const {
    std::vector<const Wait*> all{&wait};
    for (const Wait& other : all_waits_)
      if (other.rank != wait.rank && other.call->group == wait.call->group && other.call->number == wait.call->number &&
          !wait.call->is_message() && same_call(*other.call, *wait.call))
        all.push_back(&other);
    return all;
  }

  std::vector<std::string> details() const {
    std::vector<std::string> lines;
    std::set<const Call*> told;
    std::set<int> waiting;
    for (const Wait& wait : all_waits_) {
      waiting.insert(wait.rank->rank);
      if (told.contains(wait.call)) continue;
      const auto together = together_with(wait);
      for (const Wait* other : together) told.insert(other->call);
      lines.push_back(waits_words(together));
    }
    for (const auto& [number, rank] : ranks_)
      if (!waiting.contains(number))
        lines.push_back(fmt::format("rank {}: {}{}", number, activity_words(rank), last_call_words(*rank)));
    return lines;
  }

  Verdict verdict_of(Kind kind, const Wait& wait, int culprit, const std::string& state) const {
    const auto together = together_with(wait);
    Verdict result{.kind = kind, .culprit = culprit, .waited_ms = wait.call->age_ms};
    for (const Wait* other : together) result.waiting.push_back(other->rank->rank);
    result.words = fmt::format("{} for rank {} ({})", waits_words(together), culprit, state);
    result.fault = fmt::format("is {} while {} {} for it in {}{} since {}", state, ranks_words(result.waiting),
                               result.waiting.size() == 1 ? "waits" : "wait", describe(*wait.call),
                               group_words(wait.group), seconds_words(wait.call->age_ms));
    return result;
  }

  // --- the rules, in the order of their certainty

  // The calls that the ranks made under the number in which this rank waits.
  std::map<int, const Call*> calls_like(const Wait& wait) const {
    std::map<int, const Call*> calls;
    if (wait.call->is_message() || !wait.group) return calls;
    for (const int member : members_of(*wait.group))
      if (const RankSnapshot* const rank = known(member))
        if (const Call* const call = find_call(*rank, wait.call->group, wait.call->number)) calls[member] = call;
    return calls;
  }

  std::optional<Verdict> mismatch() const {
    const Wait* first = nullptr;  // of a group the lowest number: what follows is its consequence
    for (const Wait& wait : waits_) {
      const auto calls = calls_like(wait);
      const bool differ = std::any_of(calls.begin(), calls.end(),
                                      [&](const auto& entry) { return !same_call(*entry.second, *wait.call); });
      if (differ && (!first || wait.call->number < first->call->number)) first = &wait;
    }
    if (!first) return std::nullopt;
    return mismatch_of(*first);
  }

  // The majority is right, and among equals the lowest rank.
  Verdict mismatch_of(const Wait& wait) const {
    std::vector<std::pair<const Call*, std::vector<int>>> camps;
    for (const auto& [rank, call] : calls_like(wait)) {
      auto camp = std::find_if(camps.begin(), camps.end(), [&](const auto& c) { return same_call(*c.first, *call); });
      if (camp == camps.end()) camp = camps.insert(camps.end(), {call, {}});
      camp->second.push_back(rank);
    }
    std::stable_sort(camps.begin(), camps.end(),
                     [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
    const auto& [minority, odd] = camps.back();
    Verdict result{.kind = Kind::mismatch, .proven = true, .culprit = odd.front(), .waited_ms = wait.call->age_ms};
    std::vector<std::string> parts;
    for (const auto& [call, ranks] : camps) {
      parts.push_back(fmt::format("{}: {}", ranks_words(ranks), describe(*call)));
      if (call != minority) result.waiting.insert(result.waiting.end(), ranks.begin(), ranks.end());
    }
    result.words = fmt::format("the ranks are in different operations{} since {}: {}", group_words(wait.group),
                               seconds_words(wait.call->age_ms), join(parts, ", "));
    result.fault =
        fmt::format("called another operation than the others{}: {}", group_words(wait.group), join(parts, ", "));
    result.advice =
        "All ranks must make the same calls in the same order: look for a branch that depends on the rank or on its "
        "data. GLOG_v=3 logs every call before it runs.";
    return result;
  }

  bool cannot_continue(const RankSnapshot& rank) const {
    return has_ended(rank.state) || (rank.state == ProcessState::stopped && rank.stopped_ms >= options_.waited_ms);
  }

  std::optional<Verdict> gone() const {
    for (const bool certain : {true, false})
      for (const Wait& wait : waits_)
        for (const int awaited : wait.awaited) {
          const RankSnapshot* const rank = known(awaited);
          if (!rank || (certain ? !cannot_continue(*rank) : rank->state != ProcessState::stopped)) continue;
          const bool stopped = rank->state == ProcessState::stopped;
          Verdict result = verdict_of(stopped ? Kind::stopped : Kind::gone, wait, awaited, words_of(rank->state));
          result.proven = certain;
          result.advice = stopped ? "It got SIGSTOP or a similar signal: `kill -CONT` lets it go on."
                                  : "All ranks must make the same calls: look for a return or an exit that only this "
                                    "rank takes.";
          return result;
        }
    return std::nullopt;
  }

  enum class Calls { blocking, all };

  // The ranks that wait in a call that needs another one of them: removing those that may still go on leaves these.
  std::map<int, const Wait*> waiting_for_each_other(Calls which) const {
    std::map<int, const Wait*> stuck;
    for (const Wait& wait : waits_)
      if ((wait.call->blocking || which == Calls::all) && !wait.awaited.empty()) stuck.emplace(wait.rank->rank, &wait);
    for (bool changed = true; changed;) {
      changed = std::erase_if(stuck, [&](const auto& entry) {
                  const auto& awaited = entry.second->awaited;
                  return std::none_of(awaited.begin(), awaited.end(), [&](int rank) { return stuck.contains(rank); });
                }) > 0;
    }
    return stuck;
  }

  std::optional<Verdict> deadlock() const {
    const auto stuck = waiting_for_each_other(Calls::blocking);
    if (stuck.empty()) return std::nullopt;
    Verdict result = verdict_of(stuck);
    result.proven = true;
    result.culprit = stuck.begin()->first;
    std::erase(result.waiting, *result.culprit);
    result.advice =
        "Ranks that are in several groups must use them in the same order on every rank; of two ranks that exchange "
        "messages one must send first, or use isend and irecv.";
    return result;
  }

  // The same beside the main threads, which may still make the calls that the others wait for.
  std::optional<Verdict> cycle() const {
    const auto stuck = waiting_for_each_other(Calls::all);
    if (stuck.empty()) return std::nullopt;
    Verdict result = verdict_of(stuck);
    result.advice =
        "Every rank must run the same backwards, of the same models in the same order, and make its other calls "
        "between "
        "the same two of them: look for a batch that one rank skips.";
    return result;
  }

  Verdict verdict_of(const std::map<int, const Wait*>& stuck) const {
    Verdict result{.kind = Kind::deadlock};
    std::vector<std::string> parts;
    for (const auto& [rank, wait] : stuck) {
      result.waiting.push_back(rank);
      result.waited_ms = std::max(result.waited_ms, wait->call->age_ms);
      parts.push_back(fmt::format("rank {} waits in {}{} for {}", rank, describe(*wait->call), group_words(wait->group),
                                  ranks_words(wait->awaited)));
    }
    result.words = fmt::format("ranks wait for each other since {}: {}", seconds_words(result.waited_ms),
                               join_some(parts, 4, "; "));
    result.fault = fmt::format("is in a deadlock: {}", join_some(parts, 4, "; "));
    return result;
  }

  // The rank at the end of a chain of waits: others wait for it, and it waits for none.
  std::optional<Verdict> busy() const {
    const Wait* longest = nullptr;
    int culprit = -1;
    for (const Wait& wait : waits_)
      for (const int awaited : wait.awaited) {
        if (waits_itself(awaited) || waits_for_bytes(awaited) ||
            (longest && wait.call->age_ms <= longest->call->age_ms))
          continue;
        longest = &wait;
        culprit = awaited;
      }
    if (!longest) return std::nullopt;
    Verdict result = verdict_of(Kind::busy, *longest, culprit, activity_words(known(culprit)));
    result.advice = busy_advice(known(culprit));
    return result;
  }

  bool waits_itself(int rank) const {
    return std::any_of(all_waits_.begin(), all_waits_.end(),
                       [&](const Wait& wait) { return wait.rank->rank == rank && !wait.awaited.empty(); });
  }

  // For long, in a call in which nobody is missing: it is not busy, and what waits for it waits for the same bytes.
  bool waits_for_bytes(int rank) const {
    return std::any_of(waits_.begin(), waits_.end(), [&](const Wait& wait) {
      return wait.rank->rank == rank && wait.call->blocking && wait.awaited.empty();
    });
  }

  static std::string busy_advice(const RankSnapshot* rank) {
    if (rank && rank->phase == Phase::data)
      return "Its dataset does not deliver: is the storage slow or gone, or does a sample never end?";
    if (rank && rank->state == ProcessState::disk) return "It waits for a disk or a network file system.";
    return fmt::format("It may only be slow: the job goes on when it comes.{}", kLogCalls);
  }

  // Ranks of other machines whose launchers do not tell.
  std::vector<int> unknown_to(const Wait& wait) const {
    std::vector<int> ranks = wait.call->is_message() ? std::vector<int>{wait.call->peer}
                             : wait.group            ? members_of(*wait.group)
                                                     : std::vector<int>();
    std::erase_if(ranks, [&](int rank) { return known(rank) != nullptr; });
    return ranks;
  }

  Verdict inside() const {
    const auto longest = std::max_element(waits_.begin(), waits_.end(),
                                          [](const Wait& a, const Wait& b) { return a.call->age_ms < b.call->age_ms; });
    const auto together = together_with(*longest);
    Verdict result{.kind = Kind::inside, .waited_ms = longest->call->age_ms};
    for (const Wait* wait : together) result.waiting.push_back(wait->rank->rank);
    const std::vector<int> silent = unknown_to(*longest);
    result.words = fmt::format(
        "{}; {}", waits_words(together),
        silent.empty() ? "all its ranks are in it" : fmt::format("nothing is known about {}", ranks_words(silent)));
    if (!silent.empty()) {
      result.advice = "Their launcher does not answer: look at that machine and the network.";
      return result;
    }
    result.advice =
        fmt::format("The data moves slowly or not at all: look at the network between the machines.{}", kLogCalls);
    return result;
  }

  const JudgeOptions options_;
  std::map<int, const RankSnapshot*> ranks_;
  std::vector<Wait> all_waits_;
  std::vector<Wait> waits_;  // those that are long enough to count
};

}  // namespace

Verdict judge(const std::vector<RankSnapshot>& ranks, const JudgeOptions& options) {
  return Judge(ranks, options).verdict();
}

const char* to_string(Verdict::Kind kind) {
  constexpr const char* kNames[] = {"none", "mismatch", "stopped", "gone", "deadlock", "busy", "inside", "still"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace trireme::watch
