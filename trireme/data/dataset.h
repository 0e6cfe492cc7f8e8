// What can be trained on: a number of samples, each an input and what is to be learned from it.
//
//   class Squares : public data::Dataset {
//    public:
//     int64_t size() const override { return 1000; }
//     data::Sample get(int64_t index) const override {
//       auto x = torch::tensor(static_cast<float>(index));
//       return {x, x * x};
//     }
//   };
//
// One whose samples change at random, from epoch to epoch, is a RandomDataset. It seeds a generator with the draw it is
// given, and keeps none of its own, so that what comes depends on no thread:
//
//   class Noisy : public data::RandomDataset {
//    public:
//     int64_t size() const override { return 1000; }
//     data::Sample get(int64_t index, uint64_t draw) const override {
//       std::mt19937_64 generator(draw);
//       …
//     }
//   };
//
// Datasets know nothing of ranks, batches and order: that is the Loader's.
//
// A sample that cannot be read, such as a truncated file, is a *bad* one. Training gets another in its place; an
// evaluation asks for batches without them (Pick::leave_out_bad), which then have fewer rows, or none at all.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/data/order/pick.h"

namespace trireme::data {

struct Sample {
  torch::Tensor data;
  torch::Tensor target;
};

/// Samples stacked along a new first dimension.
using Batch = Sample;

/// Samples that could not be used, as far as this process has met them.
struct BadSamples {
  int64_t samples = 0;                  ///< of the dataset, each once; 0: none of them is ever bad
  int64_t allowed = 0;                  ///< more than so many are an error
  std::vector<int64_t> numbers = {};    ///< of the bad ones, each once, below size(): the same on every rank
  std::vector<std::string> first = {};  ///< "path: reason" of some of them
};

/// A Loader calls get() or batch() from threads of its own, and several Loaders may share a dataset: all must be safe
/// to call from several threads at once, and must give the same for the same index and draw whenever they are called.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  /// 0 <= index < size().
  virtual Sample get(int64_t index) const = 0;
  /// get() of each, stacked. Override it where many at once are faster than one by one.
  virtual Batch batch(std::span<const int64_t> indices) const;

  /// The same with draws, which a dataset without randomness need not look at: get(index) and batch(pick.indices).
  virtual Sample get(int64_t index, uint64_t draw) const;
  /// This is what a Loader asks for.
  virtual Batch batch(const Pick& pick) const;

  virtual BadSamples bad() const { return {}; }
};

/// Which samples of a batch that has fewer rows than its pick are in it, by their place in the pick. Reads them again,
/// one by one.
std::vector<size_t> present(const Dataset& dataset, const Pick& pick);

/// One whose samples depend on their draws. Override get(index, draw); batch(pick) stacks what it gives.
class RandomDataset : public Dataset {
 public:
  Sample get(int64_t index, uint64_t draw) const override = 0;
  Sample get(int64_t index) const override { return get(index, 0); }
  Batch batch(const Pick& pick) const override;
  /// With draws of 0.
  Batch batch(std::span<const int64_t> indices) const override;
};

}  // namespace trireme::data
