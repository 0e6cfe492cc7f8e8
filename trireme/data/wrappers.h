// Datasets made of datasets. Each takes a dataset by value or a shared pointer to one, and passes draws on, so that
// random samples stay random, and the same for any number of threads.
//
//   data::FashionMnist clothes;
//   data::Subset validation(clothes, 0, 500);
//   data::Map inverted(validation, [](data::Sample s) { return data::Sample{1 - s.data, s.target}; });
//   data::Concat all({clothes, data::Mnist("digits")});
//   data::Cache cached(slow);                       // each sample is read once and kept in memory
//
// All of them take samples of any named tensors (sample.h). Batches and reading ahead are options of the Loader:
// {.batch_size = 64, .workers = 4, .prefetch = 2}.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "trireme/data/dataset.h"

namespace trireme::data {

/// A dataset that several may hold: how wrappers take what they wrap.
class Shared {
 public:
  template <std::derived_from<Dataset> D>
  Shared(D dataset) : dataset_(std::make_shared<const D>(std::move(dataset))) {}
  /// Throws UsageError for a null pointer.
  template <std::derived_from<Dataset> D>
  Shared(std::shared_ptr<D> dataset) : dataset_(std::move(dataset)) {
    check();
  }
  const Dataset* operator->() const { return dataset_.get(); }
  const Dataset& operator*() const { return *dataset_; }

 private:
  void check() const;
  std::shared_ptr<const Dataset> dataset_;
};

/// Each sample as returned by a function. It is called from the Loader's threads; a random one seeds a generator with
/// the draw.
class Map : public RandomDataset {
 public:
  using RandomDataset::batch;
  using RandomDataset::get;
  using Function = std::function<Sample(Sample, uint64_t draw)>;
  template <std::invocable<Sample, uint64_t> F>
  Map(Shared dataset, F function) : dataset_(std::move(dataset)), function_(std::move(function)) {}
  template <std::invocable<Sample> F>
  Map(Shared dataset, F function)
      : dataset_(std::move(dataset)),
        function_([function = std::move(function)](Sample sample, uint64_t) { return function(std::move(sample)); }) {}

  int64_t size() const override { return dataset_->size(); }
  Sample get(int64_t index, uint64_t draw) const override;
  Batch batch(const Pick& pick) const override;
  BadSamples bad() const override { return dataset_->bad(); }

 private:
  Shared dataset_;
  Function function_;
};

/// Some of the samples, in the order given; one may come several times.
class Subset : public RandomDataset {
 public:
  using RandomDataset::batch;
  using RandomDataset::get;
  /// Throws UsageError for an index that the dataset does not have.
  Subset(Shared dataset, std::vector<int64_t> indices);
  /// `count` samples from `first` on.
  Subset(const Shared& dataset, int64_t first, int64_t count);

  int64_t size() const override { return static_cast<int64_t>(indices_->size()); }
  Sample get(int64_t index, uint64_t draw) const override;
  Batch batch(const Pick& pick) const override;
  /// Of these samples, each once, under the number of the first place where it comes.
  BadSamples bad() const override;

 private:
  Shared dataset_;
  std::shared_ptr<const std::vector<int64_t>> indices_;
  int64_t different_ = 0;  // samples
};

/// All samples in one fixed order that depends on the seed: for example to split a sorted dataset in two. (A Loader
/// shuffles by itself, in another order for each epoch.)
Subset shuffled(Shared dataset, uint64_t seed);

/// One dataset behind the other. Their samples must be of the same shape and type.
class Concat : public RandomDataset {
 public:
  using RandomDataset::batch;
  using RandomDataset::get;
  /// Throws UsageError for none.
  explicit Concat(std::vector<Shared> parts);

  int64_t size() const override { return ends_.back(); }
  Sample get(int64_t index, uint64_t draw) const override;
  /// One batch from each part that has a share in it.
  Batch batch(const Pick& pick) const override;
  BadSamples bad() const override;

 private:
  size_t part_of(int64_t index) const;
  std::vector<Shared> parts_;
  std::vector<int64_t> ends_;  // of each part
};

/// Keeps each sample in memory from when it is first asked for. Draws are not passed on: put a Map around it for what
/// is random. A bad sample is not kept, nor what replaces it. Copies share the memory.
class Cache : public Dataset {
 public:
  explicit Cache(Shared dataset);

  using Dataset::batch;
  using Dataset::get;
  int64_t size() const override { return dataset_->size(); }
  Sample get(int64_t index) const override;
  Batch batch(const Pick& pick) const override;
  BadSamples bad() const override { return dataset_->bad(); }

 private:
  struct Slots;
  std::optional<Sample> unless_bad(int64_t index) const;
  Shared dataset_;
  std::shared_ptr<Slots> slots_;
};

}  // namespace trireme::data
