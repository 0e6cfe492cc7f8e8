#include "trireme/parallel/sharded/unit_values.h"

#include <ATen/record_function.h>
#include <torch/torch.h>

#include <exception>
#include <utility>

#include "trireme/comm/members.h"
#include "trireme/core/error.h"
#include "trireme/core/log.h"

namespace trireme::parallel {

UnitValues::UnitValues(std::vector<ShardUnit>& units, const UnitGroups& groups, bool keep_parameters)
    : units_(units),
      groups_(groups),
      agreement_(groups.gather),
      keep_parameters_(keep_parameters),
      in_use_(units.size(), 0),
      writing_(units.size(), false) {}

// The outermost operator counts: the version of what an inner one has written moves when that one ends.
void UnitValues::leave(size_t unit, bool has_written) {
  if (has_written) writing_[unit] = true;
  if (--in_use_[unit] > holds_ || !writing_[unit]) return;
  writing_[unit] = false;
  units_[unit].note_write();
}

void UnitValues::use(size_t unit, bool writes) {
  // Each rank keeps its own part of what it writes while all is whole, so nothing needs to be gathered for it.
  if (keep_parameters_ && holds_ > 0 && writes && !old_) return;
  need(unit);
  // While all is whole one rank alone may look at its values, to save them say: that is not the order of a step.
  if (keep_parameters_ || holds_ > 0) return;
  order_.use(unit);
  const std::optional<size_t> next = order_.next();
  release_idle_units(next);
  if (next && !units_[*next].resident() && !units_[*next].gathering()) start_gather(*next);
}

void UnitValues::hold() {
  change_uses(+1);
  try {
    for (size_t i = 0; i < units_.size(); ++i) need(i);
  } catch (...) {
    change_uses(-1);
    throw;
  }
  ++holds_;
}

void UnitValues::let_go() {
  --holds_;
  change_uses(-1);
  for (ShardUnit& unit : units_)
    if (unit.resident()) unit.absorb_writes();
  // Each rank has kept its own part of what was written: the others' parts must come from them.
  if (keep_parameters_ && holds_ == 0) rewritten_ = true;
  hide_old_values();
  release_idle_units();
}

bool UnitValues::settle() {
  for (ShardUnit& unit : units_)
    if (unit.resident()) unit.absorb_writes();
  if (keep_parameters_)
    for (size_t i = 0; i < units_.size(); ++i) need(i);
  return keep_parameters_ || holds_ > 0;
}

void UnitValues::change_uses(int by) {
  for (int& uses : in_use_) uses += by;
}

void UnitValues::need(size_t unit) {
  if (keep_parameters_) refresh_all();
  if (!keep_parameters_ && !units_[unit].gathering() && !units_[unit].resident()) start_gather(unit);
  if (units_[unit].gathering()) units_[unit].finish_gather();
}

// After a step the values of all units are old, and forward will need all of them: they travel while it computes.
void UnitValues::refresh_all() {
  if (!old_ && !rewritten_) return;
  agree_to_gather(0);
  old_ = rewritten_ = false;
  for (ShardUnit& unit : units_) unit.start_gather();
}

void UnitValues::start_gather(size_t unit) {
  agree_to_gather(unit);
  old_ = false;
  units_[unit].start_gather();
}

// A few bytes before each gather. Ranks that gather different units would get each other's weights, in silence where
// the units are of one size; where they are not, Gloo ends the process. So the gather starts only when all agree.
void UnitValues::agree_to_gather(size_t unit) {
  const at::DisableRecordFunctionGuard unobserved;
  std::vector<Write> writes;
  for (ShardUnit& one : units_)
    for (Write& write : one.take_writes()) writes.push_back(std::move(write));
  agreement_.require_same({.action = fmt::format("use parameter {}", first_name(unit)),
                           .advice = "with sharded parameters every rank must run the same layers in the same order, "
                                     "also to evaluate",
                           .stepped = written_,
                           .writes = std::move(writes)});
}

// All but those that an operator uses now, or that are on their way.
void UnitValues::release_idle_units(std::optional<size_t> except) {
  if (keep_parameters_) return;
  for (size_t i = 0; i < units_.size(); ++i)
    if (i != except && in_use_[i] == 0 && !units_[i].gathering()) units_[i].release();
}

void UnitValues::note_write(const char* operation) {
  if (!keep_parameters_ && holds_ > 0)
    throw UsageError(
        "{}: {} changes this rank's pieces while `gathered()` lives, so the whole parameters would keep their old "
        "values; end it before optimizer.step()",
        own_place(groups_.reduce), operation);
  written_ = true;
  outdate();
}

void UnitValues::note_new_values() {
  if (holds_ > 0)
    throw UsageError(
        "{}: weights are restored while `gathered()` lives, so the whole parameters would keep their old values; end "
        "it "
        "before",
        own_place(groups_.reduce));
  outdate();
}

void UnitValues::outdate() {
  if (std::exchange(old_, true)) return;
  for (ShardUnit& unit : units_) {
    if (unit.gathering()) unit.finish_gather();  // else the others would get some old and some new values
    if (unit.resident()) unit.absorb_writes();
    unit.bump_versions();
  }
  hide_old_values();
  release_idle_units();
}

// Of kept parameters, until they are gathered again; not of those that an operator uses now.
void UnitValues::hide_old_values() {
  if (!keep_parameters_ || !old_) return;
  for (size_t i = 0; i < units_.size(); ++i)
    if (in_use_[i] == 0 && !units_[i].gathering()) units_[i].release();
}

void UnitValues::end_of_step() {
  order_.end_of_step();
  release_idle_units();
  written_ = false;
}

void UnitValues::fill_with_nan(size_t unit) noexcept {
  try {
    units_[unit].fill_with_nan();
  } catch (const std::exception& error) {
    log_error("{}", error.what());
  }
}

}  // namespace trireme::parallel
