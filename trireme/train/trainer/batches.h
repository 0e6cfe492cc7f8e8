// The batches of a training: DataLoader.Train and, beside each, one of DataLoader.UnLabelTrain.
//
//   Batches batches(config, losses.need_labels(), me, device);
//   batches.start(epoch);
//   for (int64_t iter = 0; iter < batches.size(); ++iter) use(batches.next());
//
// An epoch is one pass over the labelled pictures, or Global.iter_per_epoch batches; the unlabelled ones begin again
// whenever they are at their end. The same epoch always gives the same batches, however the run came to it. After the
// loaders' states have been loaded, go_on() instead of start() gives the rest of an epoch, also on another number of
// ranks.
// For one thread at a time.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>

#include "trireme/config/train_config.h"
#include "trireme/data/loader.h"
#include "trireme/train/trainer/make_dataset.h"

namespace trireme::trainer {

struct TrainBatch {
  torch::Tensor images;
  torch::Tensor target;  ///< of the labelled ones
  int64_t labelled = 0;  ///< so many samples at the beginning have a label
  int64_t rows() const { return images.size(0); }
};

/// A loader that never ends.
class EndlessLoader {
 public:
  EndlessLoader(const config::DataLoader& config, const MadeDataset& dataset, uint64_t seed, RankInfo me,
                torch::Device device);

  /// Begins with the first pass of an epoch of `iters` batches.
  void start(int64_t epoch, int64_t iters);
  /// Begins with the rest of the pass in which the loader's state was saved. Returns its batches.
  int64_t go_on();
  const data::Batch& next();
  int64_t batches() const { return loader_.size(); }
  bool labelled() const { return labelled_; }
  data::Loader& loader() { return loader_; }

 private:
  data::Loader loader_;
  std::optional<data::Loader::Iterator> at_;
  bool taken_ = false;  // the batch at at_
  bool labelled_;
};

class Batches {
 public:
  Batches(const config::TrainConfig& config, bool need_labels, RankInfo me, torch::Device device);

  /// Of an epoch; the same on every rank.
  int64_t size() const { return iters_; }
  void start(int64_t epoch);
  /// Where the loaders stand, `iter` batches into an epoch. Returns how many of size() batches are done.
  int64_t go_on(int64_t iter);
  TrainBatch next();

  data::Loader& loader() { return labelled_.loader(); }
  data::Loader* unlabelled_loader() { return unlabelled_ ? &unlabelled_->loader() : nullptr; }

 private:
  EndlessLoader labelled_;
  std::optional<EndlessLoader> unlabelled_;
  bool whole_passes_;
  int64_t iters_;
};

}  // namespace trireme::trainer
