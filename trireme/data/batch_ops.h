// What is done to a whole batch: mixup and CutMix, as PaddleClas' batch_transform_ops.
//
//   data::OpSampler either({{data::Mixup{.alpha = 0.2, .class_num = 1000}, 0.5},
//                           {data::CutMix{.alpha = 1.0, .class_num = 1000}, 0.5}}, 1000);
//   data::Loader train(data::BatchMap(images, either), {.batch_size = 128, .workers = 4}, world);
//
// Both mix each sample of a batch with another of the same batch, all with one share lam. The targets become soft
// labels, N x class_num: lam for a sample's own label, 1 - lam for the other's. With class_num 0 they become N x 3
// numbers instead: label, other label, lam; mixed_labels() takes them apart.
//
// All that is random comes from the batch's draw: it is the same for any number of workers, and differs from rank to
// rank.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "trireme/data/dataset.h"
#include "trireme/data/wrappers.h"

namespace trireme::data {

using BatchOp = std::function<Batch(Batch, uint64_t draw)>;

/// Pictures are blended (arXiv 1710.09412): lam x own + (1 - lam) x other, lam from Beta(alpha, alpha). Throws
/// UsageError for an alpha that is not above 0 and for a label that is not below class_num.
struct Mixup {
  double alpha = 1;
  int64_t class_num = 0;
  Batch operator()(const Batch& batch, uint64_t draw) const;
};

/// A rectangle of the other picture is put in (arXiv 1905.04899), its area 1 - lam of the picture's before what sticks
/// out is cut off; the labels get the shares that are really seen. Pictures are the last two dimensions.
struct CutMix {
  double alpha = 0.2;
  int64_t class_num = 0;
  Batch operator()(const Batch& batch, uint64_t draw) const;
};

/// One of several operators for each batch. What is left of the probabilities to 1 leaves the pictures alone; their
/// labels then still become soft ones, so that all batches are of one kind.
class OpSampler {
 public:
  struct Choice {
    BatchOp op;
    double prob = 0.5;
  };
  /// class_num: as in the operators. Throws UsageError for probabilities below 0 or of more than 1 together.
  OpSampler(std::vector<Choice> choices, int64_t class_num);
  Batch operator()(const Batch& batch, uint64_t draw) const;

 private:
  std::vector<Choice> choices_;
  int64_t class_num_;
};

/// A dataset whose batches go through an operator, in the Loader's threads. A single sample is a batch of one.
class BatchMap : public RandomDataset {
 public:
  using RandomDataset::batch;
  using RandomDataset::get;
  BatchMap(Shared dataset, BatchOp op) : dataset_(std::move(dataset)), op_(std::move(op)) {}

  int64_t size() const override { return dataset_->size(); }
  Sample get(int64_t index, uint64_t draw) const override;
  Batch batch(const Pick& pick) const override;
  BadSamples bad() const override { return dataset_->bad(); }

 private:
  Shared dataset_;
  BatchOp op_;
};

/// The targets of class_num 0, taken apart.
struct MixedLabels {
  torch::Tensor label;  ///< int64, N
  torch::Tensor other;  ///< int64, N
  torch::Tensor lam;    ///< float, N
};
/// Throws UsageError for a target that is not N x 3.
MixedLabels mixed_labels(const torch::Tensor& target);

}  // namespace trireme::data
