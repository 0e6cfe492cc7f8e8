#include "trireme/watch/snapshot.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <map>
#include <nlohmann/json.hpp>

#include "trireme/core/error.h"
#include "trireme/core/text.h"
#include "trireme/core/whole_numbers.h"

namespace trireme::watch {

using nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Call, group, number, operation, dtype, reduce, elements, digest, sizes, size_count,
                                   root, peer, blocking, open, age_ms)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GroupView, id, world, size, again, ranks, begun)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankSnapshot, rank, state, stopped_ms, step, phase, phase_ms, still_ms, groups,
                                   calls)

namespace {

constexpr size_t kLastCalls = 8;   // of each group: how far the ranks of a group may be apart to be compared
constexpr int kMaxRank = 1 << 20;  // also the ranks of a group

int64_t age_ms(int64_t since, int64_t now, int64_t most) {
  return std::clamp<int64_t>((now - since) / 1'000'000, 0, most);
}

std::vector<int> ranks_of(const GroupRecord& group) {
  std::vector<int> ranks;
  if (group.world != 0) return ranks;
  for (size_t rank = 0; rank < GroupRecord::kMaxRank; ++rank)
    if ((group.members[rank / 64] >> (rank % 64)) & 1) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

Call call_of(const CallRecord& record, int64_t now, int64_t observed_ms) {
  const size_t sizes = std::min<size_t>(record.size_count, CallRecord::kSizes);
  return {.group = record.group,
          .number = record.number,
          .operation = printable(record.operation),
          .dtype = printable(record.dtype),
          .reduce = printable(record.reduce),
          .elements = record.elements,
          .digest = record.digest,
          .sizes = {record.sizes, record.sizes + sizes},
          .size_count = record.size_count,
          .root = record.root,
          .peer = record.peer,
          .blocking = record.blocking == 1,
          .open = record.open(),
          .age_ms = age_ms(record.started, now, observed_ms)};
}

std::string shape_words(const Call& call) {
  if (call.dtype.empty()) return "";
  const char* more = call.size_count > call.sizes.size() ? ", ..." : "";
  return fmt::format(" {}[{}{}]", call.dtype, fmt::join(call.sizes, ", "), more);
}

}  // namespace

std::string describe(const Call& call) {
  std::string text = call.operation;
  if (call.number != 0) text += fmt::format(" #{}", call.number);
  text += shape_words(call);
  if (!call.reduce.empty()) text += " " + call.reduce;
  if (call.is_message()) return text + fmt::format(" {} rank {}", call.operation == "send" ? "to" : "from", call.peer);
  if (call.root >= 0) text += fmt::format(" with root {}", call.root);
  return text;
}

RankSnapshot take_snapshot(const Ring& ring, int64_t now, int64_t observed_ms) {
  RankSnapshot rank{.rank = std::clamp(ring.rank(), 0, kMaxRank), .step = ring.step(), .phase = ring.phase()};
  rank.phase_ms = age_ms(ring.phase_since(), now, observed_ms);
  for (const GroupProgress& group : ring.groups())
    rank.groups.push_back({.id = group.group.id,
                           .world = group.group.world != 0,
                           .size = std::min<uint32_t>(group.group.size, kMaxRank),
                           .again = group.group.again,
                           .ranks = ranks_of(group.group),
                           .begun = group.begun});
  std::vector<CallRecord> calls = ring.calls();
  std::sort(calls.begin(), calls.end(), [](const CallRecord& a, const CallRecord& b) { return a.started > b.started; });
  const int64_t moved = std::max(ring.last_event(), calls.empty() ? 0 : calls.front().started);
  if (moved != 0) rank.still_ms = age_ms(moved, now, observed_ms);
  std::map<uint64_t, size_t> kept;
  for (const CallRecord& call : calls)
    if (call.open() || kept[call.group]++ < kLastCalls) rank.calls.push_back(call_of(call, now, observed_ms));
  return rank;
}

int64_t longest_wait_ms(const std::vector<RankSnapshot>& ranks) {
  int64_t longest = 0;
  for (const RankSnapshot& rank : ranks)
    for (const Call& call : rank.calls)
      if (call.open) longest = std::max(longest, call.age_ms);
  return longest;
}

std::string to_json(const std::vector<RankSnapshot>& ranks) {
  return json(ranks).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<RankSnapshot> snapshots_from_json(const std::string& text) try {
  const RankSnapshot pattern{.groups = {GroupView{.ranks = {0}}}, .calls = {Call{.sizes = {0}}}};
  const json value = json::parse(text);
  require_whole_numbers(value, json::array({pattern}));
  auto ranks = value.get<std::vector<RankSnapshot>>();
  for (const RankSnapshot& rank : ranks)
    if (rank.rank < 0 || rank.rank > kMaxRank || rank.state < ProcessState::unknown ||
        rank.state > ProcessState::dead || rank.phase > Phase::save)
      throw PeerError("a node sent the state of rank {} with a value out of range", rank.rank);
  for (const RankSnapshot& rank : ranks)
    for (const GroupView& group : rank.groups)
      if (group.size > uint32_t{kMaxRank})
        throw PeerError("a node sent a group of {} ranks; at most {} are possible", group.size, kMaxRank);
  return ranks;
} catch (const json::exception& error) {
  throw PeerError("a node sent the state of its ranks in a form that cannot be read ({})", printable(error.what()));
}

}  // namespace trireme::watch
