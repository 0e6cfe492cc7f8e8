#include "trireme/parallel/parameter_schedule.h"

#include <bit>

#include "trireme/comm/members.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"
#include "trireme/parallel/parameter_check.h"

namespace trireme::parallel {

void ParameterSchedule::joined(int64_t backwards, bool with_optimizer) {
  joined_at_ = backwards;
  has_own_steps_ = has_own_steps_ || !with_optimizer;
}

void ParameterSchedule::check(const Backward& backward) {
  const int64_t since_join = backward.number - joined_at_;
  const bool due = interval_ > 0 && backward.number % interval_ == 0;
  const bool early = since_join < interval_ && std::has_single_bit(static_cast<uint64_t>(since_join));
  const bool changed = group_.size() > 1 && backward.learns && backward.number > 1;  // new parameters must start equal
  if (!backward.all_are_active || !(due || early || changed)) return;
  // Early on, a loss that grows beyond all numbers is soon seen by the loop, which can say more.
  const NonFinite non_finite = due || changed ? NonFinite::error : NonFinite::allowed;
  const std::string when = describe(backward);
  check_replicas(when);
  if (group_.size() > 1) require_equal_parameters(module_, group_, when, non_finite);
}

// Weights were changed by an optimizer, or alike on all ranks.
void ParameterSchedule::check_changed(const Backward& backward, const Changes& changes) {
  changes_ = changes;
  if ((changes.after_local || changes.by_hand) && backward.all_are_active)
    require_equal_parameters(module_, group_, describe(backward), NonFinite::allowed);
  changes_ = {};
}

// Its number, and what may have made the parameters differ.
std::string ParameterSchedule::describe(const Backward& backward) const {
  std::string text = fmt::format("backward() number {}", backward.number);
  if (changes_.after_local) text += ", the first since the weights were changed after one under no_sync()";
  if (changes_.by_hand)
    text += ", the first since the weights were changed between two calls of torch::autograd::grad()";
  if (has_own_steps_)
    text +=
        " (ranks that ran out of data in join() have made fewer steps of their optimizers: call "
        "join(train, optimizer))";
  return text;
}

void ParameterSchedule::check_replicas(const std::string& when) const {
  const Replicas replicas = replicas_of(module_);
  const std::string difference = difference_of_replicas(replicas, group_, when);
  if (difference.empty()) return;
  if (must_stay_equal(replicas)) {
    group_.abort(difference);
    throw UsageError("{}: {}", own_place(group_), difference);
  }
  log_warning("{}", difference);
}

}  // namespace trireme::parallel
