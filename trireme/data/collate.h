// How samples that cannot simply be stacked become a batch: sentences, lists of boxes, anything ragged.
//
//   data::Collate batches(sentences, data::pad_sequences({{"tokens"}, {"tags", -100}}));
//   data::Loader train(batches, {.batch_size = 32, .shuffle = true}, world);
//   for (auto& batch : train) step(batch["tokens"], batch["tokens_lengths"], batch["tags"]);
//
// A function of your own takes the samples of a batch and returns the batch:
//
//   data::Collate pairs(images, [](const std::vector<data::Sample>& samples) { …; return data::Batch{…}; });
//
// It runs in the Loader's threads. Put Collate around the wrappers that see single samples (Map, Cache, Concat);
// BatchMap goes around Collate.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/data/dataset.h"
#include "trireme/data/wrappers.h"

namespace trireme::data {

/// Gets at least one sample. Must be safe to call from several threads at once, and give the same for the same samples.
using CollateFunction = std::function<Batch(const std::vector<Sample>&)>;

/// A dataset whose batches a function makes of its samples.
class Collate : public RandomDataset {
 public:
  using RandomDataset::batch;
  using RandomDataset::get;
  /// Throws UsageError for an empty function.
  Collate(Shared dataset, CollateFunction function);

  int64_t size() const override { return dataset_->size(); }
  Sample get(int64_t index, uint64_t draw) const override { return dataset_->get(index, draw); }
  Batch batch(const Pick& pick) const override;
  BadSamples bad() const override { return dataset_->bad(); }

 private:
  Shared dataset_;
  CollateFunction function_;
};

/// A tensor whose first dimension differs from sample to sample, and the number that fills it up.
struct Pad {
  std::string name;
  double value = 0;
};

/// Pads the named tensors to the longest of the batch and stacks all tensors. For each of them the batch also has
/// NAME_lengths, int64, N: the length of each sample before. Of an (x, y) sample the names are "data" and "target".
/// Throws UsageError for an empty list. The batch is a UsageError when a name is not there, a tensor has no dimension,
/// dimensions behind the first differ, types differ, or the value does not fit the type.
CollateFunction pad_sequences(std::vector<Pad> pads);

}  // namespace trireme::data
