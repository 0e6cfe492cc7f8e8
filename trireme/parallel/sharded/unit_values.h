// When the values of a model's units are there: gathered before an operator uses them, gone after it if they are not
// kept, gathered again after an optimizer has changed the shards (shard_unit.h).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "trireme/parallel/sharded/agreement.h"
#include "trireme/parallel/sharded/gather_order.h"
#include "trireme/parallel/sharded/shard_unit.h"

namespace trireme::parallel {

/// Every rank makes the same calls in the same order, else a UsageError names both. Thread rule: one thread at a time.
class UnitValues {
 public:
  /// `units` must outlive this.
  UnitValues(std::vector<ShardUnit>& units, const UnitGroups& groups, bool keep_parameters);

  /// Around an operator that uses the unit.
  void enter(size_t unit) { ++in_use_[unit]; }
  void leave(size_t unit, bool has_written);
  /// Between them: the unit's values are there after it, and the next unit's on their way.
  void use(size_t unit, bool writes);
  /// All values, until let_go().
  void hold();
  void let_go();

  /// What was written into the parameters goes into the pieces. Whether the parameters have their values on all ranks,
  /// since they are kept or held; kept ones that are old are gathered first.
  bool settle();

  /// An optimizer, or the program itself, writes to a piece by this operator: what was gathered is old.
  void note_write(const char* operation);
  /// A piece is about to get a restored value: what was gathered is old. UsageError while all is held.
  void note_new_values();
  /// Whether note_write() was called since the last end_of_step().
  bool written() const { return written_; }
  /// After backward.
  void end_of_step();

  /// After a failure: see ShardUnit.
  void fill_with_nan(size_t unit) noexcept;

 private:
  void change_uses(int by);
  void need(size_t unit);
  void outdate();
  void hide_old_values();
  void refresh_all();
  void start_gather(size_t unit);
  void agree_to_gather(size_t unit);
  void release_idle_units(std::optional<size_t> except = {});
  const std::string& first_name(size_t unit) const { return units_.at(unit).members()[0].name; }

  std::vector<ShardUnit>& units_;
  UnitGroups groups_;
  Agreement agreement_;
  bool keep_parameters_;
  std::vector<int> in_use_;    // how many operators use each unit now, and holds
  std::vector<bool> writing_;  // one of these operators has written to the unit
  int holds_ = 0;
  GatherOrder order_;
  bool old_ = false;        // a shard was written to since the last gather
  bool rewritten_ = false;  // values may have been written while all was whole: they are compared before their next use
  bool written_ = false;    // a shard was written to since the last backward
};

}  // namespace trireme::parallel
