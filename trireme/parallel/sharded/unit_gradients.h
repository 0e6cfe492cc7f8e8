// The gradients of a model's units: taken when backward has computed them, reduced when a unit is complete, in an order
// that all ranks share (shard_unit.h).
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/parallel/gradient_watch.h"
#include "trireme/parallel/sharded/agreement.h"
#include "trireme/parallel/sharded/shard_failure.h"
#include "trireme/parallel/sharded/shard_unit.h"

namespace trireme::parallel {

/// A parameter among the units.
struct UnitPlace {
  size_t unit;
  size_t member;
};

/// Thread rule: one thread at a time.
class UnitGradients {
 public:
  /// `units` and `failure` must outlive this.
  UnitGradients(std::vector<ShardUnit>& units, const UnitGroups& groups, bool keep_parameters, ShardFailure& failure);

  /// Calls back after each gradient of the parameters that require one now.
  void watch(const std::function<void(UnitPlace)>& on_gradient);

  bool in_backward() const { return in_backward_; }
  /// Called by every rank. UsageError on every one when gradients of the last backward were not used or not cleared on
  /// any of them, or when their models have come to differ. `written`: an optimizer has stepped since then. `model` is
  /// ModelParameters::fingerprint().
  void begin_backward(bool written, uint64_t model);
  void take(const UnitPlace& place);
  /// Reduces what is left; the averages are the pieces' gradients then. Called by every rank.
  void end_backward();
  /// Instead of the end, after an exception.
  void give_up() noexcept;

 private:
  std::string complaint_of_left_overs(bool written) const;
  void reduce_what_is_complete();
  void start_reduce(size_t unit);
  void take_local_gradients();
  std::string seen_here() const;
  void finish_units(const std::vector<std::string>& seen);
  const std::string& name_of(const UnitPlace& place) const { return units_[place.unit].members()[place.member].name; }

  std::vector<ShardUnit>& units_;
  Group group_;
  ShardFailure& failure_;
  Agreement agreement_;
  std::vector<std::unique_ptr<GradientWatch>> watches_;
  std::vector<UnitPlace> places_;  // of all parameters, unit by unit
  bool in_backward_ = false;
  bool broken_ = false;               // a backward has not come to its end
  std::vector<size_t> reduce_order_;  // of the units
  size_t next_to_reduce_ = 0;         // in it
  std::deque<size_t> under_way_;      // units whose gradients are being reduced
};

}  // namespace trireme::parallel
