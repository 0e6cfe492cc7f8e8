#include "trireme/parallel/sharded/agreement.h"

#include <c10/util/hash.h>

#include <algorithm>
#include <functional>

#include "trireme/comm/collectives.h"
#include "trireme/comm/members.h"
#include "trireme/core/error.h"
#include "trireme/core/text.h"

namespace trireme::parallel {
namespace {

constexpr char kNextField = '\t', kNextWrite = '\n';

uint64_t fingerprint_of(const Intent& intent) {
  size_t hash = std::hash<std::string>()(intent.action);
  hash = c10::hash_combine(hash, intent.stepped ? 1 : 2);
  hash = c10::hash_combine(hash, intent.model);
  for (const auto& [name, sum] : intent.writes)
    hash = c10::hash_combine(c10::hash_combine(hash, std::hash<std::string>()(name)), static_cast<size_t>(sum));
  return hash;
}

std::string packed(const Intent& intent) {
  std::vector<std::string> writes;
  for (const auto& [name, sum] : intent.writes) writes.push_back(fmt::format("{} {:x}", name, sum));
  return join({intent.complaint, intent.action, intent.advice, intent.stepped ? "1" : "0", std::to_string(intent.model),
               join(writes, std::string(1, kNextWrite))},
              std::string(1, kNextField));
}

enum Field { kComplaint, kAction, kAdvice, kStepped, kModel, kWrites };

// Of the first parameter that two ranks have not written alike, its name.
std::string first_other_write(const std::string& one, const std::string& other) {
  const std::vector<std::string> a = split(one, kNextWrite), b = split(other, kNextWrite);
  size_t i = 0;
  while (i < a.size() && i < b.size() && a[i] == b[i]) ++i;
  const std::string& line = i < b.size() && !b[i].empty() ? b[i] : a.at(std::min(i, a.size() - 1));
  return line.substr(0, line.find(' '));
}

std::string difference(Field field, const std::vector<std::string>& mine, const std::string& me,
                       const std::vector<std::string>& theirs, const std::string& other) {
  const bool i_have = mine[kStepped] == "1";
  switch (field) {
    case kStepped:
      return fmt::format(
          "an optimizer has stepped on {} since the last backward(), but not on {}: their parts of the parameters no "
          "longer belong together; make every rank step, or skip the step, alike",
          i_have ? me : other, i_have ? other : me);
    case kModel:
      return fmt::format(
          "{}: the model of {} is not like this rank's any more: requires_grad or layers were changed on one rank "
          "alone; make the same change on every rank",
          me, other);
    case kWrites:
      return fmt::format(
          "parameter {} was written on {} with other values than on {}, or on one of them alone; each rank keeps its "
          "part of what it writes: write the same on every rank, or broadcast() it while `gathered()` lives",
          first_other_write(mine[kWrites], theirs[kWrites]), me, other);
    default:
      return fmt::format("{} is about to {} while {} is about to {}; {}", me, mine[kAction], other, theirs[kAction],
                         mine[kAdvice]);
  }
}

}  // namespace

void Agreement::require_same(const Intent& mine) {
  const bool can_go_on = mine.complaint.empty();
  if (group_.size() == 1 && !can_go_on) throw UsageError("{}: {}", own_place(group_), mine.complaint);
  if (group_.size() == 1) return;
  roll_call_.begin({.active = can_go_on, .model = fingerprint_of(mine)});
  roll_call_.wait();
  const bool all_go_on = roll_call_.active().size() == static_cast<size_t>(group_.size());
  if (!all_go_on || roll_call_.with_another_model() >= 0) explain(mine);
}

// Every rank throws by itself, so nothing is aborted: that could reach another rank before its own verdict.
void Agreement::explain(const Intent& mine) const {
  std::vector<std::vector<std::string>> all;
  for (const std::string& text : all_gather_object(packed(mine), group_)) all.push_back(split(text, kNextField));
  const std::string me = own_place(group_);
  for (const auto& one : all)
    if (!one[kComplaint].empty()) throw UsageError("{}: {}", me, one[kComplaint]);
  const auto& own = all[static_cast<size_t>(group_.rank())];
  for (const Field field : {kStepped, kAction, kModel, kWrites})
    for (size_t rank = 0; rank < all.size(); ++rank)
      if (all[rank][field] != own[field])
        throw UsageError("{}", difference(field, own, me, all[rank], place_of(group_, static_cast<int>(rank))));
  throw UsageError("{}: the ranks are about to do different things", me);
}

}  // namespace trireme::parallel
