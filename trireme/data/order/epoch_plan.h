// Which rank sees which samples of one epoch, in what order: a pure function of a few numbers, the same on every rank.
//
// Words. The *order* is one list of sample numbers for all ranks. A *step* takes the next batch_size x ranks of it and
// deals them out, one batch to each rank; the last step may be smaller. So after k steps all ranks together have
// *consumed* the first k x batch_size x ranks of the list, and what is left is its rest. The list's length is a
// multiple of the number of ranks: *padding* repeats a few samples from the head, and each rank has as many steps as
// any other. Without padding the list is cut to such a multiple.
//
// An epoch that was interrupted and goes on with another number of ranks has several *stages*. The first stage's order
// is the epoch's. Each further stage has for its order what the one before has not consumed: every sample that no rank
// has seen in this epoch, once, in the order it would have come; and padded again for the new number of ranks. The
// padding of the stage before is dropped: a repetition in the part that was consumed stays seen, one in the rest is not
// used. With an unchanged number of ranks no new stage begins, and the rest is what it would have been, padding
// included.
//
//   EpochPlan plan({.samples = 10, .batch_size = 3}, 0, {{.ranks = 2}}, RankInfo{0, 2});
//   plan.steps();      // 2
//   plan.batch(0);     // 0 1 2       (rank 1: 3 4 5)
//   plan.batch(1);     // 6 7         (rank 1: 8 9)
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/core/rank_info.h"
#include "trireme/data/order/multi_scale.h"
#include "trireme/data/order/pick.h"

namespace trireme::data {

/// Whose sampler is followed, number for number.
enum class Order {
  paddle,  ///< paddle.io.DistributedBatchSampler: pads, then shuffles by numpy; a step is dealt in blocks of batch_size
  torch,   ///< torch's DistributedSampler: shuffles, then pads; a step is dealt like cards
};

const char* to_string(Order order);

struct SamplerOptions {
  int64_t samples = 0;     ///< in the dataset; at most 2^32 - 1
  int64_t batch_size = 1;  ///< per rank
  bool shuffle = false;
  bool drop_last = false;  ///< leave out a last step with less than batch_size for each rank, as DataLoader(drop_last)
  /// false: the last samples % ranks of the list are left out, where a few would be repeated. With Order::torch that is
  /// DistributedSampler(drop_last=True).
  bool pad = true;
  Order order = Order::paddle;
  uint64_t seed = 0;            ///< added to the epoch to seed the shuffle (low 32 bits). Paddle has none: 0
  MultiScale multi_scale = {};  ///< with scales, batch_size is that of the first
};

/// Throws UsageError that names a number out of range.
void check(const SamplerOptions& options, RankInfo me);

/// A part of an epoch run by one number of ranks.
struct Stage {
  int64_t ranks = 1;
  int64_t consumed = 0;  ///< of the stage's order, by all ranks together
  bool operator==(const Stage&) const = default;
};

/// Steps of a whole epoch: of one that is not resumed.
int64_t steps_per_epoch(const SamplerOptions& options, int64_t ranks);

/// Immutable: may be read by several threads.
class EpochPlan {
 public:
  /// The last stage is the running one; the plan begins where it has consumed. Requires checked options, at least one
  /// stage, and that the last one's ranks are me.size. Throws UsageError for a stage that consumed more than there was.
  EpochPlan(const SamplerOptions& options, int64_t epoch, const std::vector<Stage>& stages, RankInfo me);

  /// Steps from here to the end of the epoch, the same number on every rank.
  int64_t steps() const { return steps_; }
  /// The samples this rank sees in a step, 0 <= step < steps().
  std::vector<int64_t> batch(int64_t step) const;
  /// The same with their draws, each made of seed, epoch and sample: whatever the number of ranks, and wherever an
  /// epoch was interrupted, a sample's draw is the same.
  Pick pick(int64_t step) const;
  /// What the running stage has consumed before the given step.
  int64_t consumed_before(int64_t step) const;
  /// How many of the stage's order are repetitions.
  int64_t padding() const { return padding_; }

 private:
  int64_t batch_size_;
  Order deal_;
  uint64_t seed_;
  int64_t epoch_;
  RankInfo me_;
  int64_t consumed_;             // when the plan begins
  std::vector<uint32_t> order_;  // of the running stage
  int64_t length_ = 0;           // of the order; what lies behind is cut off
  int64_t padding_ = 0;
  int64_t steps_ = 0;
  ScaledSteps scaled_;  // empty without scales
};

}  // namespace trireme::data
