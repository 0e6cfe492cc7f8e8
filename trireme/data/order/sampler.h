// This rank's batches of sample numbers, epoch after epoch. All ranks have the same number of batches, and together
// they see every sample.
//
//   DistributedBatchSampler sampler({.samples = 60000, .batch_size = 64, .shuffle = true}, world);
//   for (int epoch = 0; epoch < 5; ++epoch)
//     for (const std::vector<int64_t>& batch : sampler) …
//
// Each loop is an epoch, in an order of its own, as in Paddle: no call of set_epoch is needed. A loop left early by
// break counts as one. load_state() lets the next loop go on within an epoch, also in a world of another size: see
// epoch_plan.h for what it then yields.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "trireme/core/rank_info.h"
#include "trireme/data/order/epoch_plan.h"
#include "trireme/data/order/sampler_state.h"

namespace trireme::data {

/// For one thread at a time.
class DistributedBatchSampler {
 public:
  using Batch = std::vector<int64_t>;
  class Iterator;

  /// Throws UsageError for numbers out of range.
  DistributedBatchSampler(const SamplerOptions& options, RankInfo me);

  /// Batches of a whole epoch, the same number on every rank.
  int64_t size() const { return steps_per_epoch(options_, me_.size); }
  /// The epoch that is running or, between loops, that comes next.
  int64_t epoch() const { return epoch_; }
  /// The next loop is this epoch from its beginning. A loop that is running ends.
  void set_epoch(int64_t epoch);

  /// Inside a loop the batch at hand counts as consumed.
  SamplerState state() const;
  /// The next loop yields the rest of the state's epoch (nothing, if it was saved inside of the last batch). The seed
  /// becomes the state's. A state in which nothing of its epoch is consumed may be of a dataset of another size: the
  /// next loop then is all of this one. Otherwise that is a UsageError, as are another order and other shuffling;
  /// nothing changes then.
  void load_state(const SamplerState& state);

  /// What a loop does: begin() is start() and next(), ++ is next().
  void start();
  std::optional<Batch> next();
  /// To fetch ahead of next(): the plan of the loop that runs, and how many of its steps next() has returned.
  std::shared_ptr<const EpochPlan> plan() const { return plan_; }
  int64_t step() const { return step_; }

  Iterator begin();
  static std::nullptr_t end() { return nullptr; }

 private:
  void rewind(int64_t epoch);

  SamplerOptions options_;
  RankInfo me_;
  int64_t epoch_ = 0;
  std::vector<Stage> stages_;              // as at the beginning of the loop; the last has this world's size
  std::shared_ptr<const EpochPlan> plan_;  // null between loops
  int64_t step_ = 0;
};

/// Goes through one loop, once.
class DistributedBatchSampler::Iterator {
 public:
  explicit Iterator(DistributedBatchSampler& sampler) : sampler_(&sampler), batch_(sampler.next()) {}
  const Batch& operator*() const { return *batch_; }
  const Batch* operator->() const { return &*batch_; }
  Iterator& operator++() {
    batch_ = sampler_->next();
    return *this;
  }
  bool operator==(std::nullptr_t) const { return !batch_; }

 private:
  DistributedBatchSampler* sampler_;
  std::optional<Batch> batch_;
};

}  // namespace trireme::data
