// Which samples a rank evaluates or predicts: the batches of one process, dealt out one by one.
//
// Training must give each rank as many batches as any other, so it repeats samples. Here nothing waits for the others
// until the end, so nothing is repeated, and every batch holds the samples it would hold alone: results are the same,
// to the last bit of each batch, on any number of ranks.
//
//   EvalShard shard(dataset, 3, RankInfo{1, 2});        // of 10 samples rank 0 has 0 1 2 | 6 7 8, rank 1 has 3 4 5 | 9
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trireme/core/rank_info.h"
#include "trireme/data/dataset.h"

namespace trireme::train {

class EvalShard : public data::Dataset {
 public:
  /// `limit`: batches of each rank at most. UsageError for an empty dataset and a batch_size below 1.
  EvalShard(std::shared_ptr<const data::Dataset> whole, int64_t batch_size, RankInfo me,
            std::optional<int64_t> limit = {});

  /// This rank's samples, and there may be none; by batches of batch_size they are this rank's batches.
  int64_t size() const override;
  data::Sample get(int64_t index) const override { return whole_->get(sample(index)); }
  data::Sample get(int64_t index, uint64_t draw) const override { return whole_->get(sample(index), draw); }
  data::Batch batch(std::span<const int64_t> indices) const override { return whole_->batch(samples_of(indices)); }
  /// What is random about a sample depends on the sample alone. Bad samples are left out: the batch has fewer rows
  /// then, or none at all.
  data::Batch batch(const data::Pick& pick) const override;
  data::BadSamples bad() const override { return whole_->bad(); }

  /// Batches and samples of all ranks.
  int64_t batches() const { return batches_; }
  int64_t samples() const;
  /// This rank's batches, and which of all the given one is.
  int64_t steps() const { return steps_of(me_.rank); }
  int64_t batch_number(int64_t step) const { return step * me_.size + me_.rank; }

  /// The outputs for a batch of this rank, with rows of NaN (whole numbers: -1) for the bad samples that were
  /// left out of it.
  torch::Tensor with_gaps(const torch::Tensor& outputs, int64_t step) const;
  /// The rows of all batches in the order of the dataset, from the rows of each rank.
  torch::Tensor in_order(const std::vector<torch::Tensor>& by_rank) const;

 private:
  int64_t steps_of(int rank) const;
  int64_t rows(int64_t batch) const;
  int64_t sample(int64_t index) const;
  std::vector<int64_t> samples_of(std::span<const int64_t> indices) const;
  static data::Pick pick_of(std::vector<int64_t> samples, int64_t image_size);

  std::shared_ptr<const data::Dataset> whole_;
  int64_t batch_size_;
  RankInfo me_;
  int64_t batches_;
};

}  // namespace trireme::train
