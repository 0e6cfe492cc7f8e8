// What can be trained on: a number of samples, each an input and a target, or a list of named tensors (sample.h).
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
// A dataset whose samples change at random from epoch to epoch is a RandomDataset. It seeds a generator with the draw
// that it is given and keeps no generator of its own, so that samples do not depend on threads:
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
// Datasets do not know about ranks, batches and order: the Loader does.
//
// A sample that cannot be read, such as a truncated file, is *bad*. Training gets another in its place; an evaluation
// asks for batches without bad samples (Pick::leave_out_bad), which then have fewer rows, or none.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/data/order/pick.h"
#include "trireme/data/sample.h"

namespace trireme::data {

/// Samples that could not be used, as far as this process has tried them.
struct BadSamples {
  int64_t samples = 0;                  ///< of the dataset, each once; 0: none of them is ever bad
  int64_t allowed = 0;                  ///< more than so many are an error
  std::vector<int64_t> numbers = {};    ///< of the bad ones, each once, below size(): the same on every rank
  std::vector<std::string> first = {};  ///< "path: reason" of some of them
};

/// A Loader calls get() or batch() from its own threads, and several Loaders may share a dataset: these functions must
/// be safe to call from several threads at once, and must return the same for the same index and draw.
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

/// Which samples of a pick are not bad, by their place in the pick. Reads each of them again.
std::vector<size_t> present(const Dataset& dataset, const Pick& pick);

/// A dataset whose samples depend on their draws. Override get(index, draw); batch(pick) stacks the results.
class RandomDataset : public Dataset {
 public:
  Sample get(int64_t index, uint64_t draw) const override = 0;
  Sample get(int64_t index) const override { return get(index, 0); }
  Batch batch(const Pick& pick) const override;
  /// With draws of 0.
  Batch batch(std::span<const int64_t> indices) const override;
};

}  // namespace trireme::data
